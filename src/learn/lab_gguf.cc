// A lab model as GGUF, and back. Keys as in https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (frozen on disk).
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/ordered_json.h"
#include "learn/lab_mixture.h"
#include "learn/lab_trainer.h"
#include "loader/gguf_writer.h"
#include "loader/model_files.h"
#include "models/arch.h"

namespace millrace {
namespace {

void write_spec(GgufWriter& writer, const ArchSpec& spec) {
  const LayerSpec& layer = spec.layers[0];
  const auto u32 = [&](const char* key, int64_t value) { writer.set_u32(key, static_cast<uint32_t>(value)); };
  u32("llama.block_count", spec.layer_count());
  u32("llama.context_length", spec.context);
  u32("llama.embedding_length", spec.width);
  u32("llama.feed_forward_length", mlp_width(layer));
  u32("llama.attention.head_count", layer.heads);
  u32("llama.attention.head_count_kv", layer.kv_heads);
  writer.set_f32("llama.attention.layer_norm_rms_epsilon", spec.norm_eps);
  u32("llama.rope.dimension_count", spec.ropes[0].rotated);
  writer.set_f32("llama.rope.freq_base", static_cast<float>(spec.ropes[0].theta));
  u32("llama.vocab_size", spec.vocab);
  if (spec.activation == HiddenActivation::relu) writer.set_string("llama.hidden_activation", "relu");
  if (layer.moe) {
    u32("llama.expert_count", layer.experts.experts);
    u32("llama.expert_used_count", layer.experts.used);
    u32("llama.expert_feed_forward_length", mlp_width(layer));
  }
}

void write_tokenizer(GgufWriter& writer, const TokenizerSpec& spec) {
  std::vector<int32_t> types;
  for (TokenType type : spec.types) types.push_back(static_cast<int32_t>(type));
  writer.set_string("tokenizer.ggml.model", "llama");
  writer.set_string("tokenizer.ggml.pre", "default");
  writer.set_strings("tokenizer.ggml.tokens", spec.tokens);
  writer.set_f32s("tokenizer.ggml.scores", spec.scores);
  writer.set_i32s("tokenizer.ggml.token_type", types);
  writer.set_u32("tokenizer.ggml.bos_token_id", kBosId);
  writer.set_u32("tokenizer.ggml.eos_token_id", kEosId);
  writer.set_u32("tokenizer.ggml.unknown_token_id", kUnkId);
  writer.set_bool("tokenizer.ggml.add_bos_token", true);
  writer.set_bool("tokenizer.ggml.add_eos_token", false);
  writer.set_bool("tokenizer.ggml.add_space_prefix", true);
  writer.set_string("tokenizer.chat_template", lab_chat_template());
}

// A tensor of the file: rows [from, from + rows) of one of the model's, or of each of its experts.
struct FileTensor {
  std::string name;
  const LabTensor* tensor;
  int64_t from, rows, heads = 0, experts = 0;

  bool vector() const { return tensor->rows == 1; }
  bool plain() const { return vector() || name.find("ffn_gate_inp") != std::string::npos; }  // always F32
  std::vector<int64_t> dims() const {
    if (vector()) return {tensor->columns};
    if (experts > 0) return {experts, rows, tensor->columns};
    return {rows, tensor->columns};
  }
  int64_t file_rows() const { return rows * std::max<int64_t>(1, experts); }
  // Where the file's row is in the model's tensor. Rows of a head are interleaved: this model rotates row i with
  // i + half, llama's GGUF 2i with 2i + 1.
  int64_t model_row(int64_t row) const {
    if (experts > 0) return row / rows * (tensor->rows / experts) + from + row % rows;
    if (heads == 0) return from + row;
    const int64_t size = rows / heads, i = row % size;
    return from + row / size * size + i / 2 + i % 2 * size / 2;
  }
};

void add_layer(const LayerSpec& spec, const LabLayerTensors& layer, int64_t index, std::vector<FileTensor>& to) {
  const std::string p = "blk." + std::to_string(index) + ".";
  const int64_t mixed = spec.heads * spec.head_dim, kv = spec.kv_heads * spec.head_dim, hidden = mlp_width(spec),
                experts = spec.moe ? mlp_count(spec) : 0;
  to.push_back({p + "attn_norm.weight", &layer.attention_norm, 0, 1});
  to.push_back({p + "attn_q.weight", &layer.qkv, 0, mixed, spec.heads});
  to.push_back({p + "attn_k.weight", &layer.qkv, mixed, kv, spec.kv_heads});
  to.push_back({p + "attn_v.weight", &layer.qkv, mixed + kv, kv});
  to.push_back({p + "attn_output.weight", &layer.out, 0, layer.out.rows});
  to.push_back({p + "ffn_norm.weight", &layer.mlp_norm, 0, 1});
  const std::string kind = spec.moe ? "_exps.weight" : ".weight";
  if (spec.moe) to.push_back({p + "ffn_gate_inp.weight", &layer.router, 0, experts});
  to.push_back({p + "ffn_gate" + kind, &layer.gate_up, 0, hidden, 0, experts});
  to.push_back({p + "ffn_up" + kind, &layer.gate_up, hidden, hidden, 0, experts});
  to.push_back({p + "ffn_down" + kind, &layer.down, 0, layer.out.rows, 0, experts});
}

std::vector<FileTensor> file_tensors(const LabModel& model) {
  std::vector<FileTensor> out = {{"token_embd.weight", &model.embedding(), 0, model.embedding().rows}};
  for (size_t i = 0; i < model.layers().size(); ++i)
    add_layer(model.spec().layers[i], model.layers()[i], static_cast<int64_t>(i), out);
  out.push_back({"output_norm.weight", &model.final_norm(), 0, 1});
  return out;
}

// Keys of a model that computes what LabModel does.
constexpr std::string_view kKnownKeys[] = {"block_count",
                                           "context_length",
                                           "embedding_length",
                                           "feed_forward_length",
                                           "attention.head_count",
                                           "attention.head_count_kv",
                                           "attention.key_length",
                                           "attention.value_length",
                                           "attention.layer_norm_rms_epsilon",
                                           "rope.dimension_count",
                                           "rope.freq_base",
                                           "vocab_size",
                                           "hidden_activation",
                                           "expert_count",
                                           "expert_used_count",
                                           "expert_feed_forward_length"};

Error cannot_continue(const ModelFiles& files, const std::string& why) {
  return Error::user(fmt::format("train-lab cannot continue from {}: {}", files.path, why));
}

Result<void> check_keys(const ModelFiles& files) {
  constexpr std::string_view kPrefix = "llama.";
  for (const auto& [key, value] : files.config->items()) {
    if (!key.starts_with(kPrefix)) continue;
    if (std::ranges::find(kKnownKeys, std::string_view(key).substr(kPrefix.size())) == std::end(kKnownKeys))
      return cannot_continue(files, fmt::format("it does not train models with the key {}", key));
  }
  const auto activation = files.config->find("llama.hidden_activation");
  if (activation != files.config->end() && *activation != "silu" && *activation != "relu")
    return cannot_continue(files, fmt::format("it trains silu and relu, not the activation {}", activation->dump()));
  return {};
}

// The file's spec, for rows of heads as LabModel has them. Sizes are checked before anything is allocated: the spec is
// what the metadata say, the tensors are what the file has.
Result<ArchSpec> read_spec(const ModelFiles& files) {
  if (files.kind != ModelFiles::Kind::gguf || files.architecture != "llama")
    return cannot_continue(files, "it trains GGUF files of the architecture llama, not of " + files.architecture);
  MILLRACE_TRY_VOID(check_keys(files));
  MILLRACE_TRY(ArchSpec spec, read_arch_spec(files));
  spec.rope_style = RopeStyle::half;
  if (const auto checked = trainable(spec); !checked.ok()) return cannot_continue(files, checked.error().message);
  int64_t values = 0;
  for (const StoredTensor& stored : files.tensors) values += stored.tensor.values();
  if (trained_parameters(spec) <= values) return spec;
  return cannot_continue(files, fmt::format("its metadata describe {} weights, and its tensors have {}",
                                            trained_parameters(spec), values));
}

}  // namespace

Result<void> export_lab_gguf(const LabModel& model, const TokenizerSpec& spec, const std::string& name,
                             const std::string& format, const std::string& path) {
  const Format* stored = find_format(format);
  if (!stored || !find_format("f32")) return Error::user("unknown number format (--format): " + format);
  if (std::ssize(spec.tokens) != model.spec().vocab)
    return Error::corrupt("the vocabulary's size differs from the model's: " + path);
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("general.name", name);
  writer.set_string("general.description", "A small model trained on exercises with exact answers and on stories");
  writer.set_string("general.license", "cdla-sharing-1.0");
  writer.set_u32("general.quantization_version", 2);
  write_spec(writer, model.spec());
  write_tokenizer(writer, spec);
  for (const FileTensor& one : file_tensors(model)) {
    const Format* used = one.plain() ? find_format("f32") : stored;
    const float* values = model.weights().data() + one.tensor->offset;
    writer.add_tensor(one.name, used, one.dims(), [one, used, values](uint8_t* to, int64_t) -> Result<void> {
      const int64_t columns = one.tensor->columns;
      for (int64_t row = 0; row < one.file_rows(); ++row)
        used->encode(values + one.model_row(row) * columns, to + row * used->row_bytes(columns), columns);
      return {};
    });
  }
  return writer.write(path);
}

Result<LabImport> import_lab_gguf(const std::string& path) {
  MILLRACE_TRY(const ModelFiles files, open_model_files(path));
  MILLRACE_TRY_VOID(check_finite(files));
  MILLRACE_TRY(const ArchSpec arch, read_spec(files));
  if (!files.tokenizer || std::ssize(files.tokenizer->tokens) != arch.vocab)
    return cannot_continue(files, "its vocabulary's size differs from that of its embedding");
  auto spec = lab_vocabulary(files.tokenizer->tokens);
  if (!spec.ok()) return Error::user(spec.error().message + ": " + path);
  LabImport out{LabModel(arch, 0), std::move(*spec)};
  const std::vector<FileTensor> known = file_tensors(out.model);
  for (const StoredTensor& stored : files.tensors)  // a weight part, or a head of its own
    if (std::ranges::find(known, stored.name, &FileTensor::name) == known.end())
      return cannot_continue(files, "it does not train the tensor " + stored.name);
  for (const FileTensor& one : known) {
    const StoredTensor* stored = files.find(one.name);
    const int64_t columns = one.tensor->columns;
    if (!stored || !stored->tensor.format || stored->tensor.cols() != columns ||
        stored->tensor.rows() != one.file_rows())
      return Error::user(fmt::format("{}: tensor {} is not as train-lab exports it", path, one.name));
    float* values = out.model.weights().data() + one.tensor->offset;
    const Format& format = *stored->tensor.format;
    for (int64_t row = 0; row < one.file_rows(); ++row)
      format.decode(stored->tensor.data + row * format.row_bytes(columns), values + one.model_row(row) * columns,
                    columns);
  }
  return out;
}

}  // namespace millrace
