#include "synthetic_shape.h"

#include <fmt/format.h>

#include <cmath>

#include "formats/format.h"

namespace millrace {
namespace {

constexpr SyntheticShape kShapes[] = {
    {"llama-15m", "llama", "fits in one or two L2 caches", 6, 256, 768, 8, 8, 32, 0, 0, 4096},
    {"llama-60m", "llama", "fits in a large L3 cache", 8, 512, 1536, 8, 8, 64},
    {"llama-125m", "llama", "a small llama", 12, 768, 2048, 12, 12, 64},
    {"llama-1.1b", "llama", "grouped-query attention, 4 query heads per KV head", 16, 2048, 8192, 32, 8, 64},
    {"mixtral-0.8b", "mixtral", "8 experts, 2 of them active", 8, 1024, 3584, 16, 4, 64, 8, 2},
    {"qwen3moe-1.2b", "qwen3moe", "64 small experts, 8 of them active", 12, 1024, 512, 16, 4, 64, 64, 8},
};

// Which layers of a mix get more bits: the first and last eighth, and every third one in between.
bool gets_more_bits(int64_t layer, int64_t layers) {
  const int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

class TensorList {
 public:
  TensorList(const ArchSpec& spec, const Format* format, bool mixed) : spec_(spec), format_(format), mixed_(mixed) {}

  std::vector<OutputTensor> list() {
    matrix("token_embd.weight", {spec_.vocab, spec_.width}, false);
    for (int64_t i = 0; i < spec_.layer_count(); ++i) layer(i);
    vector("output_norm.weight", spec_.width);
    matrix("output.weight", {spec_.vocab, spec_.width}, true);
    return std::move(out_);
  }

 private:
  void matrix(std::string name, std::vector<int64_t> dims, bool more_bits) {
    const Format* format = mixed_ && more_bits ? find_format("q6_k") : format_;
    out_.push_back({std::move(name), format, std::move(dims), false, {}});
  }
  void vector(std::string name, int64_t n) { out_.push_back({std::move(name), find_format("f32"), {n}, false, {}}); }

  void layer(int64_t index) {
    const std::string prefix = fmt::format("blk.{}.", index);
    const bool more_bits = gets_more_bits(index, spec_.layer_count());
    const int64_t q = spec_.heads * spec_.head_dim, kv = spec_.kv_heads * spec_.head_dim;
    vector(prefix + "attn_norm.weight", spec_.width);
    matrix(prefix + "attn_q.weight", {q, spec_.width}, false);
    matrix(prefix + "attn_k.weight", {kv, spec_.width}, false);
    matrix(prefix + "attn_v.weight", {kv, spec_.width}, more_bits);
    matrix(prefix + "attn_output.weight", {spec_.width, q}, false);
    if (spec_.qk_norm == QkNorm::head) {
      vector(prefix + "attn_q_norm.weight", spec_.head_dim);
      vector(prefix + "attn_k_norm.weight", spec_.head_dim);
    }
    vector(prefix + "ffn_norm.weight", spec_.width);
    const int64_t experts = spec_.moe.experts;
    const auto stacked = [&](int64_t rows, int64_t cols) {
      return experts > 0 ? std::vector<int64_t>{experts, rows, cols} : std::vector<int64_t>{rows, cols};
    };
    const int64_t hidden = experts > 0 ? spec_.moe.hidden : spec_.hidden;
    const char* ending = experts > 0 ? "_exps.weight" : ".weight";
    if (experts > 0)  // routers are not quantized
      out_.push_back({prefix + "ffn_gate_inp.weight", find_format("f32"), {experts, spec_.width}, false, {}});
    matrix(prefix + "ffn_gate" + ending, stacked(hidden, spec_.width), false);
    matrix(prefix + "ffn_up" + ending, stacked(hidden, spec_.width), false);
    matrix(prefix + "ffn_down" + ending, stacked(spec_.width, hidden), more_bits);
  }

  const ArchSpec& spec_;
  const Format* format_;
  bool mixed_;
  std::vector<OutputTensor> out_;
};

}  // namespace

std::span<const SyntheticShape> synthetic_shapes() { return kShapes; }

Result<ArchSpec> synthetic_spec(const SyntheticShape& shape) {
  if (shape.arch != "llama" && shape.arch != "mixtral" && shape.arch != "qwen3moe")
    return Error::user(fmt::format("--arch: {} is not one of llama, mixtral, qwen3moe", shape.arch));
  if ((shape.arch == "llama") != (shape.experts == 0))
    return Error::user(fmt::format("--experts: {} does not go with {}", shape.experts, shape.arch));
  if (shape.used > shape.experts || (shape.experts > 0 && shape.used < 1))
    return Error::user(fmt::format("--used: {} of {} experts", shape.used, shape.experts));
  if (shape.heads % shape.kv_heads != 0 || shape.head_dim % 2 != 0)
    return Error::user(fmt::format("--heads: {} of {} do not share {}", shape.heads, shape.head_dim, shape.kv_heads));
  if (shape.vocab < 320) return Error::user(fmt::format("--vocab: at least 320 tokens, not {}", shape.vocab));
  ArchSpec spec;
  spec.arch = shape.arch;
  spec.name = shape.name;
  spec.vocab = shape.vocab;
  spec.context = 32768;
  spec.width = shape.width;
  spec.heads = shape.heads;
  spec.kv_heads = shape.kv_heads;
  spec.head_dim = shape.head_dim;
  spec.hidden = shape.experts > 0 && shape.arch == "qwen3moe" ? shape.hidden * shape.used : shape.hidden;
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  if (shape.arch == "qwen3moe")
    spec.qk_norm = QkNorm::head;
  else
    spec.rope_style = RopeStyle::interleaved;
  RopeSpec rope;
  rope.rotated = shape.head_dim;
  spec.ropes.push_back(rope);
  if (shape.experts > 0) {
    spec.moe.experts = shape.experts;
    spec.moe.used = shape.used;
    spec.moe.hidden = shape.hidden;
  }
  spec.layers.assign(static_cast<size_t>(shape.layers), LayerSpec{0, 0, shape.experts > 0});
  return spec;
}

Result<std::vector<OutputTensor>> synthetic_tensors(const ArchSpec& spec, std::string_view format) {
  const bool mixed = format == "q4_k_m";
  const Format* stored = find_format(mixed ? "q4_k" : format);
  if (!stored || stored->gguf_type < 0) return Error::user(fmt::format("--format: GGUF stores no {}", format));
  auto tensors = TensorList(spec, stored, mixed).list();
  for (const OutputTensor& tensor : tensors)
    if (tensor.dims.back() % tensor.format->block_values != 0)
      return Error::user(fmt::format("{}: rows of {} values are not a multiple of the block size of {}", tensor.name,
                                     tensor.dims.back(), tensor.format->name));
  return tensors;
}

TokenizerSpec synthetic_tokenizer(int64_t vocab) {
  TokenizerSpec spec;
  spec.kind = "spm";
  spec.bos = 1;
  spec.eos = 2;
  spec.unk = 0;
  spec.eog = {2};
  spec.add_bos = true;
  const auto add = [&](std::string text, TokenType type) {
    if (static_cast<int64_t>(spec.tokens.size()) >= vocab) return;
    spec.scores.push_back(type == TokenType::normal ? -static_cast<float>(spec.tokens.size()) : 0.0f);
    spec.tokens.push_back(std::move(text));
    spec.types.push_back(type);
  };
  add("<unk>", TokenType::unknown);
  add("<s>", TokenType::control);
  add("</s>", TokenType::control);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenType::byte);
  add("\xE2\x96\x81", TokenType::normal);
  std::vector<std::string> words = {""}, longer;
  while (static_cast<int64_t>(spec.tokens.size()) < vocab) {  // all words of one letter, then of two, ...
    longer.clear();
    for (const std::string& word : words)
      for (char letter = 'a'; letter <= 'z'; ++letter) longer.push_back(word + letter);
    for (const std::string& word : longer) add(word, TokenType::normal);
    for (const std::string& word : longer) add("\xE2\x96\x81" + word, TokenType::normal);
    words.swap(longer);
  }
  return spec;
}

}  // namespace millrace
