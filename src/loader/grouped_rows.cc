#include "loader/grouped_rows.h"

#include <fmt/format.h>

#include <cstring>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "loader/hf_weights.h"

namespace millrace {
namespace {

using GroupJson = nlohmann::ordered_json;

constexpr int64_t kMaxGroupedSize = 1 << 20;

Result<int64_t> read_size(const GroupJson& config, const char* key, int64_t standard) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    if (standard > 0) return standard;
    return Error::corrupt(fmt::format("config.json: {} is missing", key));
  }
  if (!found->is_number_integer() || found->get<int64_t>() < 1 || found->get<int64_t>() > kMaxGroupedSize)
    return Error::corrupt(
        fmt::format("config.json: {} must be a whole number from 1 to {}, is {}", key, kMaxGroupedSize, found->dump()));
  return found->get<int64_t>();
}

// InternLM2 (Cai et al., 2024): of each KV head its query heads, its key and its value.
Result<std::vector<GroupedRows>> internlm2_rows(const GroupJson& config) {
  MILLRACE_TRY(const int64_t width, read_size(config, "hidden_size", 0));
  MILLRACE_TRY(const int64_t heads, read_size(config, "num_attention_heads", 0));
  MILLRACE_TRY(const int64_t kv_heads, read_size(config, "num_key_value_heads", heads));
  MILLRACE_TRY(const int64_t head_dim, read_size(config, "head_dim", std::max<int64_t>(1, width / heads)));
  if (heads % kv_heads != 0)
    return Error::corrupt(
        fmt::format("config.json: {} query heads cannot share {} key and value heads", heads, kv_heads));
  return std::vector<GroupedRows>{
      {.name = "attention.wqkv",
       .groups = kv_heads,
       .parts = {
           {"attention.wq", heads / kv_heads * head_dim}, {"attention.wk", head_dim}, {"attention.wv", head_dim}}}};
}

// Qwen3-Next (Qwen Team, 2025): of each key head the query, the key, and the values and gates of the value heads that
// read it.
Result<std::vector<GroupedRows>> qwen3_next_rows(const GroupJson& config) {
  MILLRACE_TRY(const int64_t keys, read_size(config, "linear_num_key_heads", 16));
  MILLRACE_TRY(const int64_t heads, read_size(config, "linear_num_value_heads", 32));
  MILLRACE_TRY(const int64_t key_dim, read_size(config, "linear_key_head_dim", 128));
  MILLRACE_TRY(const int64_t value_dim, read_size(config, "linear_value_head_dim", 128));
  if (heads % keys != 0)
    return Error::corrupt(fmt::format("config.json: {} value heads cannot share {} key heads", heads, keys));
  const int64_t values = heads / keys * value_dim;
  const std::string qkv = "linear_attn.in_proj_qkv";
  return std::vector<GroupedRows>{
      {.name = "linear_attn.in_proj_qkvz",
       .groups = keys,
       .parts = {{qkv, key_dim}, {qkv, key_dim}, {qkv, values}, {"linear_attn.in_proj_z", values}}}};
}

struct Layout {
  std::string_view architecture, model_type;
  Result<std::vector<GroupedRows>> (*read)(const GroupJson& config);
};
constexpr Layout kLayouts[] = {{"InternLM2ForCausalLM", "internlm2", internlm2_rows},
                               {"Qwen3NextForCausalLM", "qwen3_next", qwen3_next_rows}};

// PREFIX.NAME.weight or PREFIX.NAME.bias; empty: another tensor. `kind` is what follows the name.
std::string_view kind_of(std::string_view tensor, std::string_view name) {
  const size_t at = tensor.rfind(name);
  if (at == std::string_view::npos || at == 0 || tensor[at - 1] != '.') return {};
  const std::string_view kind = tensor.substr(at + name.size());
  return kind.starts_with('.') ? kind : std::string_view{};
}

// The matrix of the parts [part, end): the rows of each part, group after group.
Result<StoredTensor> take_parts(ModelFiles& model, const StoredTensor& whole, const GroupedRows& layout, size_t part,
                                size_t end, std::string_view kind) {
  const int64_t total = layout.groups * layout.group_rows(), row_bytes = whole.tensor.bytes / total;
  int64_t first = 0, rows = 0;
  for (size_t i = 0; i < part; ++i) first += layout.parts[i].rows;
  for (size_t i = part; i < end; ++i) rows += layout.parts[i].rows;
  MILLRACE_TRY(AlignedBuffer bytes, AlignedBuffer::allocate(layout.groups * rows * row_bytes, "grouped rows"));
  uint8_t* to = bytes.data();
  for (size_t i = part; i < end; first += layout.parts[i++].rows)
    for (int64_t group = 0; group < layout.groups; ++group) {
      const auto count = static_cast<size_t>(layout.parts[i].rows * row_bytes);
      std::memcpy(to, whole.tensor.data + (group * layout.group_rows() + first) * row_bytes, count);
      to += count;
    }
  StoredTensor out = whole;
  const std::string_view prefix =
      std::string_view(whole.name).substr(0, whole.name.size() - kind.size() - layout.name.size());
  out.name = fmt::format("{}{}{}", prefix, layout.parts[part].name, kind);
  out.tensor.dims[0] = layout.groups * rows;
  out.tensor.data = bytes.data();
  out.tensor.bytes = layout.groups * rows * row_bytes;
  model.buffers.push_back(std::make_shared<const AlignedBuffer>(std::move(bytes)));
  return out;
}

Result<void> check_grouped(const ModelFiles& model, const StoredTensor& whole, const GroupedRows& layout,
                           std::string_view kind) {
  const int64_t total = layout.groups * layout.group_rows();
  const bool vector = kind == ".bias";
  if ((kind != ".weight" && !vector) || !whole.tensor.format || whole.scales.values.size() > 1 ||
      (vector && whole.tensor.format->block_values > 1))
    return Error::unsupported(
        fmt::format("{}: tensor {} has type {}: its rows belong to several matrices, and cannot be separated",
                    model.path, whole.name, whole.type_name));
  if (whole.tensor.rank != (vector ? 1 : 2) || whole.tensor.dims[0] != total)
    return Error::corrupt(fmt::format("{}: tensor {} has {} rows, the model needs {} groups of {}", model.path,
                                      whole.name, whole.tensor.dims[0], layout.groups, layout.group_rows()));
  return {};
}

}  // namespace

int64_t GroupedRows::group_rows() const {
  int64_t rows = 0;
  for (const Part& part : parts) rows += part.rows;
  return rows;
}

Result<std::vector<GroupedRows>> grouped_rows(std::string_view architecture, const nlohmann::ordered_json& config) {
  for (const Layout& layout : kLayouts)
    if (layout.architecture == architecture || layout.model_type == architecture) return layout.read(config);
  return std::vector<GroupedRows>();
}

Result<void> unpack_grouped_rows(ModelFiles& model, const nlohmann::ordered_json& config) {
  const auto layouts = grouped_rows(model.architecture, config);
  if (!layouts.ok()) return Error{layouts.error().kind, model.path + "/" + layouts.error().message};
  if (layouts->empty()) return {};
  std::vector<bool> absorbed(model.tensors.size(), false);
  std::vector<StoredTensor> parts;
  for (size_t i = 0; i < absorbed.size(); ++i)
    for (const GroupedRows& layout : *layouts) {
      const StoredTensor& whole = model.tensors[i];
      const std::string_view kind = kind_of(whole.name, layout.name);
      if (kind.empty()) continue;
      MILLRACE_TRY_VOID(check_grouped(model, whole, layout, kind));
      for (size_t part = 0, end = 0; part < layout.parts.size(); part = end) {
        while (end < layout.parts.size() && layout.parts[end].name == layout.parts[part].name) ++end;
        MILLRACE_TRY(StoredTensor one, take_parts(model, whole, layout, part, end, kind));
        parts.push_back(std::move(one));
      }
      absorbed[i] = true;
    }
  for (const StoredTensor& part : parts)
    if (model.find(part.name))
      return Error::corrupt(
          fmt::format("{}: tensor {} is stored twice, alone and among the rows of another", model.path, part.name));
  remove_tensors(model, absorbed);
  for (StoredTensor& part : parts) {
    model.tensor_index.emplace(part.name, model.tensors.size());
    model.tensors.push_back(std::move(part));
  }
  return {};
}

}  // namespace millrace
