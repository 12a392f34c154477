// A lab model as GGUF, and back. Keys as in https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (frozen on disk).
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/ordered_json.h"
#include "learn/lab_mixture.h"
#include "learn/lab_trainer.h"
#include "loader/gguf_writer.h"
#include "loader/model_files.h"

namespace millrace {
namespace {

void write_shape(GgufWriter& writer, const LabShape& shape) {
  const auto u32 = [&](const char* key, int64_t value) { writer.set_u32(key, static_cast<uint32_t>(value)); };
  u32("llama.block_count", shape.layers);
  u32("llama.context_length", shape.context);
  u32("llama.embedding_length", shape.dim);
  u32("llama.feed_forward_length", shape.hidden);
  u32("llama.attention.head_count", shape.heads);
  u32("llama.attention.head_count_kv", shape.kv_heads);
  writer.set_f32("llama.attention.layer_norm_rms_epsilon", shape.epsilon);
  u32("llama.rope.dimension_count", shape.head_dim());
  writer.set_f32("llama.rope.freq_base", static_cast<float>(shape.rope_base));
  u32("llama.vocab_size", shape.vocab);
  if (shape.gate == LabGate::relu) writer.set_string("llama.hidden_activation", "relu");
  if (shape.experts > 0) {
    u32("llama.expert_count", shape.experts);
    u32("llama.expert_used_count", 2);
    u32("llama.expert_feed_forward_length", shape.hidden);
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

void add_layer(const LabShape& shape, const LabLayerTensors& layer, int64_t index, std::vector<FileTensor>& to) {
  const std::string p = "blk." + std::to_string(index) + ".";
  const int64_t kv = shape.kv_heads * shape.head_dim(), hidden = shape.hidden, experts = shape.experts;
  to.push_back({p + "attn_norm.weight", &layer.attention_norm, 0, 1});
  to.push_back({p + "attn_q.weight", &layer.qkv, 0, shape.dim, shape.heads});
  to.push_back({p + "attn_k.weight", &layer.qkv, shape.dim, kv, shape.kv_heads});
  to.push_back({p + "attn_v.weight", &layer.qkv, shape.dim + kv, kv});
  to.push_back({p + "attn_output.weight", &layer.out, 0, shape.dim});
  to.push_back({p + "ffn_norm.weight", &layer.mlp_norm, 0, 1});
  const std::string kind = experts > 0 ? "_exps.weight" : ".weight";
  if (experts > 0) to.push_back({p + "ffn_gate_inp.weight", &layer.router, 0, experts});
  to.push_back({p + "ffn_gate" + kind, &layer.gate_up, 0, hidden, 0, experts});
  to.push_back({p + "ffn_up" + kind, &layer.gate_up, hidden, hidden, 0, experts});
  to.push_back({p + "ffn_down" + kind, &layer.down, 0, shape.dim, 0, experts});
}

std::vector<FileTensor> file_tensors(const LabModel& model) {
  std::vector<FileTensor> out = {{"token_embd.weight", &model.embedding(), 0, model.shape().vocab}};
  for (int64_t i = 0; i < model.shape().layers; ++i)
    add_layer(model.shape(), model.layers()[static_cast<size_t>(i)], i, out);
  out.push_back({"output_norm.weight", &model.final_norm(), 0, 1});
  return out;
}

// Keys of a model that computes what LabModel does; head sizes are checked with the tensors' shapes.
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

// Before anything is allocated: the shape is what the metadata say, the tensors are what the file has.
Result<void> check_size(const ModelFiles& files, const LabShape& shape) {
  int64_t values = 0;
  for (const StoredTensor& stored : files.tensors) values += stored.tensor.values();
  if (shape.parameters() <= values) return {};
  return cannot_continue(
      files, fmt::format("its metadata describe {} weights, and its tensors have {}", shape.parameters(), values));
}

Result<LabShape> read_shape(const ModelFiles& files) {
  const auto number = [&](const char* key, double missing) {
    const auto found = files.config->find(key);
    return found != files.config->end() && found->is_number() ? found->get<double>() : missing;
  };
  const auto whole = [&](const char* key) {  // sizes are checked below; larger ones are no lab model's
    const double value = number(key, 0);
    return value >= 0 && value < 1 << 24 ? static_cast<int64_t>(value) : int64_t{0};
  };
  LabShape shape;
  shape.vocab = files.tokenizer ? std::ssize(files.tokenizer->tokens) : 0;
  shape.context = whole("llama.context_length");
  shape.dim = whole("llama.embedding_length");
  shape.layers = whole("llama.block_count");
  shape.heads = whole("llama.attention.head_count");
  shape.kv_heads = whole("llama.attention.head_count_kv");
  shape.hidden = whole("llama.feed_forward_length");
  shape.experts = whole("llama.expert_count");
  const auto activation = files.config->find("llama.hidden_activation");
  if (activation != files.config->end() && *activation == "relu") shape.gate = LabGate::relu;
  shape.rope_base = number("llama.rope.freq_base", 10000);
  shape.epsilon = static_cast<float>(number("llama.attention.layer_norm_rms_epsilon", 0));
  if (files.architecture != "llama" || !trainable(shape))
    return Error::user("train-lab cannot continue from a model of this architecture and shape: " + files.path);
  MILLRACE_TRY_VOID(check_keys(files));
  const int64_t used = whole("llama.expert_used_count"), rotated = whole("llama.rope.dimension_count");
  if (shape.experts > 0 && used != 2)
    return cannot_continue(files, fmt::format("a token uses {} experts, and it trains models that use 2", used));
  if (rotated != 0 && rotated != shape.head_dim())
    return cannot_continue(files, fmt::format("rope rotates {} of a head's {} dims", rotated, shape.head_dim()));
  MILLRACE_TRY_VOID(check_size(files, shape));
  return shape;
}

}  // namespace

Result<void> export_lab_gguf(const LabModel& model, const TokenizerSpec& spec, const std::string& name,
                             const std::string& format, const std::string& path) {
  const LabShape& shape = model.shape();
  const Format* stored = find_format(format);
  if (!stored || !find_format("f32")) return Error::user("unknown number format (--format): " + format);
  if (std::ssize(spec.tokens) != shape.vocab)
    return Error::corrupt("the vocabulary's size differs from the model's: " + path);
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("general.name", name);
  writer.set_string("general.description", "A small model trained on exercises with exact answers and on stories");
  writer.set_string("general.license", "cdla-sharing-1.0");
  writer.set_u32("general.quantization_version", 2);
  write_shape(writer, shape);
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
  MILLRACE_TRY(const LabShape shape, read_shape(files));
  auto spec = lab_vocabulary(files.tokenizer->tokens);
  if (!spec.ok()) return Error::user(spec.error().message + ": " + path);
  LabImport out{LabModel(shape, 0), std::move(*spec)};
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
