// A lab model as GGUF. Keys as in https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (frozen on disk).
#include "learn/lab_mixture.h"
#include "learn/lab_trainer.h"
#include "loader/gguf_writer.h"

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

class TensorWriter {
 public:
  TensorWriter(GgufWriter& writer, const LabModel& model, const Format* format)
      : writer_(writer), model_(model), format_(format) {}

  // Rows [from, from + rows) of a tensor. With heads, each head's rows are interleaved: this model rotates row i with
  // i + half, llama's GGUF 2i with 2i + 1.
  void add(const std::string& name, const LabTensor& tensor, int64_t from, int64_t rows, int64_t heads = 0) {
    const int64_t columns = tensor.columns;
    const float* values = model_.weights().data() + tensor.offset + from * columns;
    std::vector<float> out(values, values + rows * columns);
    const int64_t size = heads > 0 ? rows / heads : 0, half = size / 2;
    for (int64_t row = 0; heads > 0 && row < rows; ++row) {
      const int64_t head = row / size, i = row % size, to = head * size + (i < half ? 2 * i : 2 * (i - half) + 1);
      std::copy_n(values + row * columns, columns, out.begin() + to * columns);
    }
    const bool vector = tensor.rows == 1;
    write(name, vector ? std::vector<int64_t>{columns} : std::vector<int64_t>{rows, columns}, std::move(out));
  }

  // Rows [from, from + rows) of each of the tensor's experts.
  void add_experts(const std::string& name, const LabTensor& tensor, int64_t experts, int64_t from, int64_t rows) {
    std::vector<float> out;
    for (int64_t expert = 0; expert < experts; ++expert) {
      const float* values =
          model_.weights().data() + tensor.offset + (expert * tensor.rows / experts + from) * tensor.columns;
      out.insert(out.end(), values, values + rows * tensor.columns);
    }
    write(name, {experts, rows, tensor.columns}, std::move(out));
  }

 private:
  void write(const std::string& name, std::vector<int64_t> dims, std::vector<float> values) {
    const bool small = dims.size() == 1 || name.find("ffn_gate_inp") != std::string::npos;  // routers stay F32 too
    const Format* format = small ? find_format("f32") : format_;
    const int64_t columns = dims.back();
    writer_.add_tensor(name, format, std::move(dims),
                       [values = std::move(values), format, columns](uint8_t* to, int64_t) -> Result<void> {
                         const int64_t rows = std::ssize(values) / columns;
                         for (int64_t row = 0; row < rows; ++row)
                           format->encode(values.data() + row * columns, to + row * format->row_bytes(columns),
                                          columns);
                         return {};
                       });
  }

  GgufWriter& writer_;
  const LabModel& model_;
  const Format* format_;
};

void add_layer(TensorWriter& writer, const LabShape& shape, const LabLayerTensors& layer, int64_t index) {
  const std::string p = "blk." + std::to_string(index) + ".";
  const int64_t kv = shape.kv_heads * shape.head_dim();
  writer.add(p + "attn_norm.weight", layer.attention_norm, 0, 1);
  writer.add(p + "attn_q.weight", layer.qkv, 0, shape.dim, shape.heads);
  writer.add(p + "attn_k.weight", layer.qkv, shape.dim, kv, shape.kv_heads);
  writer.add(p + "attn_v.weight", layer.qkv, shape.dim + kv, kv);
  writer.add(p + "attn_output.weight", layer.out, 0, shape.dim);
  writer.add(p + "ffn_norm.weight", layer.mlp_norm, 0, 1);
  if (shape.experts > 0) {
    writer.add(p + "ffn_gate_inp.weight", layer.router, 0, shape.experts);
    writer.add_experts(p + "ffn_gate_exps.weight", layer.gate_up, shape.experts, 0, shape.hidden);
    writer.add_experts(p + "ffn_up_exps.weight", layer.gate_up, shape.experts, shape.hidden, shape.hidden);
    writer.add_experts(p + "ffn_down_exps.weight", layer.down, shape.experts, 0, shape.dim);
    return;
  }
  writer.add(p + "ffn_gate.weight", layer.gate_up, 0, shape.hidden);
  writer.add(p + "ffn_up.weight", layer.gate_up, shape.hidden, shape.hidden);
  writer.add(p + "ffn_down.weight", layer.down, 0, shape.dim);
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
  TensorWriter tensors(writer, model, stored);
  tensors.add("token_embd.weight", model.embedding(), 0, shape.vocab);
  for (int64_t i = 0; i < shape.layers; ++i) add_layer(tensors, shape, model.layers()[static_cast<size_t>(i)], i);
  tensors.add("output_norm.weight", model.final_norm(), 0, 1);
  return writer.write(path);
}

}  // namespace millrace
