#include "compress/plan_edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "run/plan/stored_pattern.h"

namespace millrace {
namespace {

// "blk.12.attn_q.weight": 12, and the rest from its point on. -1: of no layer.
int64_t layer_of(std::string_view name, std::string_view& rest) {
  if (!name.starts_with("blk.")) return -1;
  int64_t layer = -1;
  const auto read = std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  if (read.ec != std::errc() || layer < 0) return -1;
  rest = name.substr(static_cast<size_t>(read.ptr - name.data()));
  return layer;
}

// Rows [first, first + rows) of a part.
SourceTensor slice(const SourceTensor& part, int64_t first, int64_t rows) {
  SourceTensor out = part;
  out.rows = rows;
  out.first_row += first;
  return out;
}

// A stack of matrices, or the rows of one: those in `kept`, of `all`.
Result<void> keep_slices(OutputTensor& tensor, int64_t all, const std::vector<int32_t>& kept) {
  const bool separate = tensor.parts.size() > 1;
  const int64_t parts = std::ssize(tensor.parts), rows = tensor.parts.front().rows;
  if (tensor.transpose || tensor.parts.front().transposed || tensor.parts.front().values ||
      (separate ? parts != all : rows % all != 0))
    return Error::unsupported(fmt::format("tensor {}: its layout is not that of {} experts", tensor.name, all));
  std::vector<SourceTensor> out;
  for (int32_t e : kept)
    out.push_back(separate ? tensor.parts[static_cast<size_t>(e)]
                           : slice(tensor.parts.front(), e * (rows / all), rows / all));
  tensor.parts = std::move(out);
  tensor.dims.front() = std::ssize(kept);
  return {};
}

// ".ffn_up.7.weight": 7, of an expert's own tensor. -1: of no expert.
int64_t expert_of(std::string_view rest, std::string& part) {
  for (std::string_view known : {".ffn_gate.", ".ffn_up.", ".ffn_down."}) {
    if (!rest.starts_with(known)) continue;
    int64_t expert = -1;
    const auto read = std::from_chars(rest.data() + known.size(), rest.data() + rest.size(), expert);
    part = known;
    return read.ec == std::errc() ? expert : -1;
  }
  return -1;
}

}  // namespace

Result<OutputTensor*> find_output(ConversionPlan& plan, const std::string& name) {
  const auto found = std::ranges::find(plan.tensors, name, &OutputTensor::name);
  if (found == plan.tensors.end()) return Error::unsupported(fmt::format("tensor {}: the model has none", name));
  return &*found;
}

Result<void> keep_layers(ConversionPlan& plan, const ArchSpec& spec, const std::string& architecture,
                         const std::vector<int64_t>& layers) {
  if (std::ranges::any_of(spec.layers, [&](const LayerSpec& layer) { return !(layer == spec.layers.front()); }))
    return Error::unsupported(
        fmt::format("{}: its layers are of different kinds, so none of them can be left out", spec.arch));
  std::vector<OutputTensor> out;
  for (OutputTensor& tensor : plan.tensors) {
    std::string_view rest;
    if (const int64_t layer = layer_of(tensor.name, rest); layer >= 0) {
      const auto at = std::ranges::find(layers, layer);
      if (at == layers.end()) continue;
      tensor.name = fmt::format("blk.{}{}", at - layers.begin(), rest);
    }
    out.push_back(std::move(tensor));
  }
  plan.tensors = std::move(out);
  plan.writer.set_u32(architecture + ".block_count", static_cast<uint32_t>(layers.size()));
  plan.writer.remove(stored_pattern_key("semsa"));  // windows of heads that have other numbers now
  return {};
}

Result<void> keep_experts(ConversionPlan& plan, const ArchSpec& spec, const std::string& architecture,
                          const std::vector<std::vector<int32_t>>& experts) {
  std::vector<OutputTensor> out;
  uint32_t count = 0;
  for (OutputTensor& tensor : plan.tensors) {
    std::string_view rest;
    const int64_t layer = layer_of(tensor.name, rest);
    const std::vector<int32_t>* kept = layer >= 0 ? &experts.at(static_cast<size_t>(layer)) : nullptr;
    if (kept && !kept->empty()) {
      count = static_cast<uint32_t>(kept->size());
      std::string part;
      if (const int64_t expert = expert_of(rest, part); expert >= 0) {
        const auto at = std::ranges::find(*kept, expert);
        if (at == kept->end()) continue;
        tensor.name = fmt::format("blk.{}{}{}.weight", layer, part, at - kept->begin());
      } else if (rest == ".ffn_gate_inp.weight" || rest.find("_exps.weight") != std::string_view::npos) {
        MILLRACE_TRY_VOID(keep_slices(tensor, spec.moe.experts, *kept));
      } else if (rest.find("exp_probs") != std::string_view::npos || rest.find("_exps.") != std::string_view::npos) {
        return Error::unsupported(fmt::format("tensor {}: experts with it cannot be left out", tensor.name));
      }
    }
    out.push_back(std::move(tensor));
  }
  plan.tensors = std::move(out);
  plan.writer.set_u32(architecture + ".expert_count", count);
  return {};
}

Result<void> keep_rows(OutputTensor& tensor, const std::vector<int64_t>& rows, ThreadPool& pool) {
  SourceTensor& whole = tensor.parts.front();
  if (tensor.parts.size() > 1 || tensor.transpose || whole.transposed)
    return Error::unsupported(fmt::format("tensor {}: its rows cannot be left out one by one", tensor.name));
  if (tensor.dims.size() == 1) {
    const std::vector<float> all = values_of(tensor, pool);
    std::vector<float> kept;
    for (int64_t row : rows) kept.push_back(all.at(static_cast<size_t>(row)));
    replace_values(tensor, 1, std::ssize(rows), std::move(kept));
    return {};
  }
  std::vector<SourceTensor> parts;  // of adjacent rows
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    for (end = begin + 1; end < rows.size() && rows[end] == rows[end - 1] + 1;) ++end;
    parts.push_back(slice(whole, rows[begin], static_cast<int64_t>(end - begin)));
  }
  tensor.parts = std::move(parts);
  tensor.dims.front() = std::ssize(rows);
  return {};
}

void replace_values(OutputTensor& tensor, int64_t rows, int64_t cols, std::vector<float> values) {
  SourceTensor part;
  part.name = tensor.name;
  part.is_vector = tensor.dims.size() == 1;
  part.rows = rows;
  part.cols = cols;
  part.values = std::make_shared<const std::vector<float>>(std::move(values));
  tensor.dims = part.is_vector ? std::vector{cols} : std::vector{rows, cols};
  tensor.parts = {std::move(part)};
}

std::vector<float> values_of(const OutputTensor& tensor, ThreadPool& pool) {
  std::vector<float> out;
  for (const SourceTensor& part : tensor.parts) {
    const size_t before = out.size();
    out.resize(before + static_cast<size_t>(part.rows * part.cols));
    float* to = out.data() + before;
    if (part.transposed)
      part.read_rows(0, part.rows, to);  // reads the whole tensor at once
    else
      pool.parallel_for(part.rows, [&](int64_t r, int) { part.read_rows(r, 1, to + r * part.cols); });
  }
  return out;
}

}  // namespace millrace
