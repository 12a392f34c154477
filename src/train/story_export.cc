#include "train/story_export.h"

#include "loader/gguf_writer.h"

namespace millrace {
namespace {

// Keys and their types as in https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (frozen on disk).
constexpr uint32_t kFileTypeMostlyF16 = 1;

void set_architecture(GgufWriter& writer, const StoryModelConfig& config, const StoryExport& target) {
  auto u32 = [&](const char* key, int64_t value) { writer.set_u32(key, static_cast<uint32_t>(value)); };
  writer.set_string("general.architecture", "llama");
  writer.set_string("general.name", target.name);
  if (!target.description.empty()) writer.set_string("general.description", target.description);
  writer.set_string("general.license", "cdla-sharing-1.0");
  u32("general.file_type", kFileTypeMostlyF16);
  u32("general.quantization_version", 2);
  u32("llama.block_count", config.layers);
  u32("llama.context_length", config.context);
  u32("llama.embedding_length", config.dim);
  u32("llama.feed_forward_length", config.ffn);
  u32("llama.attention.head_count", config.heads);
  u32("llama.attention.head_count_kv", config.kv_heads);
  writer.set_f32("llama.attention.layer_norm_rms_epsilon", static_cast<float>(config.norm_epsilon));
  u32("llama.rope.dimension_count", config.head_dim());
  writer.set_f32("llama.rope.freq_base", static_cast<float>(config.rope_base));
  u32("llama.vocab_size", config.vocab);
}

void set_tokenizer(GgufWriter& writer, const TokenizerSpec& spec) {
  std::vector<int32_t> types;
  for (TokenType type : spec.types) types.push_back(static_cast<int32_t>(type));
  writer.set_string("tokenizer.ggml.model", "llama");
  writer.set_string("tokenizer.ggml.pre", "default");
  writer.set_strings("tokenizer.ggml.tokens", spec.tokens);
  writer.set_f32s("tokenizer.ggml.scores", spec.scores);
  writer.set_i32s("tokenizer.ggml.token_type", types);
  writer.set_u32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(spec.bos.value_or(1)));
  writer.set_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(spec.eos.value_or(2)));
  writer.set_u32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(spec.unk.value_or(0)));
  writer.set_bool("tokenizer.ggml.add_bos_token", spec.add_bos);
  writer.set_bool("tokenizer.ggml.add_eos_token", spec.add_eos);
  writer.set_bool("tokenizer.ggml.add_space_prefix", spec.add_space_prefix);
}

void add_tensor(GgufWriter& writer, const std::string& name, const torch::Tensor& tensor) {
  const Format* format = find_format(tensor.dim() == 1 ? "f32" : "f16");
  std::vector<int64_t> dims(tensor.sizes().begin(), tensor.sizes().end());
  torch::Tensor values = tensor.detach().to(torch::kFloat32).contiguous();
  writer.add_tensor(name, format, dims, [values, format, name](uint8_t* destination, int64_t bytes) -> Result<void> {
    if (format->row_bytes(values.numel()) != bytes)
      return Error::internal("the writer expects a different size for tensor: " + name);
    format->encode(values.data_ptr<float>(), destination, values.numel());
    return {};
  });
}

}  // namespace

torch::Tensor interleave_heads(const torch::Tensor& weight, int64_t heads) {
  const int64_t rows = weight.size(0), columns = weight.size(1), half = rows / heads / 2;
  return weight.reshape({heads, 2, half, columns}).transpose(1, 2).reshape({rows, columns});
}

Result<void> export_story_gguf(const StoryModel& model, const TokenizerSpec& tokenizer, const StoryExport& target) {
  if (!find_format("f16") || !find_format("f32"))
    return Error::unsupported("no F16 or F32 number format in this build");
  const StoryModelConfig& config = model.config();
  const int64_t kv = config.kv_heads * config.head_dim();
  torch::NoGradGuard no_gradient;
  GgufWriter writer;
  set_architecture(writer, config, target);
  set_tokenizer(writer, tokenizer);
  add_tensor(writer, "token_embd.weight", model.embedding());
  for (int64_t i = 0; i < config.layers; ++i) {
    const StoryLayer& layer = model.layers()[static_cast<size_t>(i)];
    const std::string p = "blk." + std::to_string(i) + ".";
    add_tensor(writer, p + "attn_norm.weight", layer.attention_norm);
    add_tensor(writer, p + "attn_q.weight", interleave_heads(layer.qkv.narrow(0, 0, config.dim), config.heads));
    add_tensor(writer, p + "attn_k.weight", interleave_heads(layer.qkv.narrow(0, config.dim, kv), config.kv_heads));
    add_tensor(writer, p + "attn_v.weight", layer.qkv.narrow(0, config.dim + kv, kv));
    add_tensor(writer, p + "attn_output.weight", layer.out);
    add_tensor(writer, p + "ffn_norm.weight", layer.ffn_norm);
    add_tensor(writer, p + "ffn_gate.weight", layer.gate_up.narrow(0, 0, config.ffn));
    add_tensor(writer, p + "ffn_up.weight", layer.gate_up.narrow(0, config.ffn, config.ffn));
    add_tensor(writer, p + "ffn_down.weight", layer.down);
  }
  add_tensor(writer, "output_norm.weight", model.final_norm());
  return writer.write(target.path);
}

}  // namespace millrace
