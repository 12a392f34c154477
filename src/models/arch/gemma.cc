// Gemma 1, 2 and 3 (text). Hugging Face stores norm weights minus one; GGUF stores the full weights.
#include <fmt/format.h>

#include <cmath>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

constexpr int64_t kGemma3Pattern = 6;  // five local layers, then a global one

void set_gemma(ArchSpec& spec) {
  spec.activation = HiddenActivation::gelu_tanh;
  // The scale is rounded to the checkpoint's bfloat16 in some implementations; the papers say sqrt(width).
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.width)));
}

void read_gemma_gguf(ConfigReader&, ArchSpec& spec) { set_gemma(spec); }

// Old files state hidden_act "gelu" and mean its approximation by tanh; hidden_activation counts as it is.
void read_gemma(ConfigReader& config, ArchSpec& spec) {
  const HiddenActivation stated = spec.activation;
  set_gemma(spec);
  if (config.has("hidden_activation")) spec.activation = stated;
  spec.norm_offset = 1.0f;
}

void set_query_scale(ArchSpec& spec, double pre_attention_scalar) {
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(pre_attention_scalar));
}

void read_gemma2_gguf(ConfigReader& meta, ArchSpec& spec) {
  set_gemma(spec);
  spec.post_norm = true;
  alternate_windows(spec, meta.count_or("attention.sliding_window", 4096, 0, kMaxContext),
                    meta.count_or("attention.sliding_window_pattern", 2, 0, kMaxLayers));
  // GGUF does not store query_pre_attn_scalar; only the 27B model (46 layers) deviates from head_dim.
  if (spec.attention_scale == 0.0f && spec.layer_count() == 46)
    set_query_scale(spec, static_cast<double>(spec.width) / static_cast<double>(spec.heads));
}

// null means no cap; a file without the field has the cap of Transformers' class.
float read_softcap(ConfigReader& config, std::string_view key, double otherwise) {
  return static_cast<float>(config.states(key) ? config.number_or(key, 0.0) : otherwise);
}

void read_gemma2_or_3(ConfigReader& config, ArchSpec& spec, double attention_cap, double final_cap) {
  constexpr double kQueryScalar = 256;  // of Transformers' classes
  read_gemma(config, spec);
  spec.post_norm = true;
  spec.attention_softcap = read_softcap(config, "attn_logit_softcapping", attention_cap);
  spec.final_softcap = read_softcap(config, "final_logit_softcapping", final_cap);
  set_query_scale(spec, config.number_or("query_pre_attn_scalar", kQueryScalar));
  read_huggingface_windows(config, spec, 2);
}

void read_gemma2(ConfigReader& config, ArchSpec& spec) { read_gemma2_or_3(config, spec, 50.0, 30.0); }

// Global layers use the long-context rope, local ones a plain one with its own base.
void split_ropes(ArchSpec& spec, double local_theta) {
  RopeSpec local;
  local.rotated = spec.ropes[0].rotated;
  local.theta = local_theta;
  spec.ropes.push_back(local);
  for (auto& layer : spec.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

void read_gemma3_gguf(ConfigReader& meta, ArchSpec& spec) {
  set_gemma(spec);
  spec.post_norm = true;
  spec.qk_norm = QkNorm::head;
  int64_t pattern = meta.is_array("attention.sliding_window_pattern")
                        ? kGemma3Pattern
                        : meta.count_or("attention.sliding_window_pattern", kGemma3Pattern, 0, kMaxLayers);
  int64_t window = meta.count_or("attention.sliding_window", 1024, 0, kMaxContext);
  alternate_windows(spec, window, pattern);
  std::vector<double> sliding;
  if (meta.is_array("attention.sliding_window_pattern"))
    sliding = meta.numbers_or_empty("attention.sliding_window_pattern");
  for (size_t i = 0; i < sliding.size() && i < spec.layers.size(); ++i)
    spec.layers[i].window = sliding[i] != 0 ? window : 0;
  split_ropes(spec, meta.number_or("rope.freq_base_swa", 10000.0));
  if (spec.attention_scale == 0.0f && spec.layer_count() == 62)  // the 27B model
    set_query_scale(spec, static_cast<double>(spec.width) / static_cast<double>(spec.heads));
}

void read_gemma3(ConfigReader& config, ArchSpec& spec) {
  read_gemma2_or_3(config, spec, 0.0, 0.0);
  spec.qk_norm = QkNorm::head;
  if (config.texts_or_empty("layer_types").empty()) read_huggingface_windows(config, spec, kGemma3Pattern);
  const double local_theta = config.number_or("rope_local_base_freq", 10000.0);
  // Newer files have an object for the layers of each type, which the common reader has read.
  if (spec.ropes.size() > 1) return;
  const bool named = config.has("rope_theta") || config.object("rope_parameters").has("rope_theta") ||
                     config.object("rope_parameters").has("full_attention");
  if (!named) spec.ropes[0].theta = 1000000.0;
  split_ropes(spec, local_theta);
}

const std::vector<TensorName> kPrePostNames = {
    {"blk.{l}.post_attention_norm.weight", "model.layers.{l}.post_attention_layernorm.weight"},
    {"blk.{l}.ffn_norm.weight", "model.layers.{l}.pre_feedforward_layernorm.weight"},
    {"blk.{l}.post_ffw_norm.weight", "model.layers.{l}.post_feedforward_layernorm.weight"},
};

// Gemma's query scale is the inverse square root of this number.
void write_query_scale(const ArchSpec& spec, nlohmann::ordered_json& config) {
  const double scalar = 1.0 / (static_cast<double>(spec.attention_scale) * spec.attention_scale);
  const double whole = std::round(scalar);
  if (std::abs(scalar - whole) < 1e-4 * scalar) {
    config["query_pre_attn_scalar"] = static_cast<int64_t>(whole);
  } else {
    config["query_pre_attn_scalar"] = scalar;
  }
}

void write_gemma2_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  meta["attention.sliding_window"] = first_window(spec);
}

void write_gemma2(const ArchSpec& spec, nlohmann::ordered_json& config) {
  write_query_scale(spec, config);
  write_softcap(config, "attn_logit_softcapping", spec.attention_softcap);
  write_softcap(config, "final_logit_softcapping", spec.final_softcap);
  write_huggingface_windows(spec, config);
  write_layer_types(spec, config);
}

void write_gemma3_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  meta["attention.sliding_window"] = first_window(spec);
  if (const int64_t pattern = window_pattern(spec); pattern != kGemma3Pattern)
    meta["attention.sliding_window_pattern"] = pattern;
  if (spec.ropes.size() > 1) meta["rope.freq_base_swa"] = spec.ropes[1].theta;
}

void write_gemma3(const ArchSpec& spec, nlohmann::ordered_json& config) {
  write_gemma2(spec, config);
  config["sliding_window_pattern"] = window_pattern(spec);
  if (spec.ropes.size() > 1) config["rope_local_base_freq"] = spec.ropes[1].theta;
}

}  // namespace

const Arch kGemma = {
    .name = "gemma",
    .huggingface = {"GemmaForCausalLM"},
    .huggingface_type = "gemma",
    .summary = "GeGLU, scaled embeddings, wide heads, tied head",
    .paper = "Gemma Team, 2024, Gemma: Open Models Based on Gemini Research and Technology",
    .activation = HiddenActivation::gelu_tanh,
    .read_gguf = read_gemma_gguf,
    .read_huggingface = read_gemma,
};
const Arch kGemma2 = {
    .name = "gemma2",
    .huggingface = {"Gemma2ForCausalLM"},
    .huggingface_type = "gemma2",
    .summary = "Gemma with soft-caps, alternating windows, norms before and after each block",
    .paper = "Gemma Team, 2024, Gemma 2: Improving Open Language Models at a Practical Size",
    .activation = HiddenActivation::gelu_tanh,
    .read_gguf = read_gemma2_gguf,
    .read_huggingface = read_gemma2,
    .names = kPrePostNames,
    .write_gguf = write_gemma2_gguf,
    .write_huggingface = write_gemma2,
};
const Arch kGemma3 = {
    .name = "gemma3",
    .huggingface = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
    .huggingface_type = "gemma3_text",
    .summary =
        "Gemma with QK-norm, five local layers per global one, separate ropes for local and global layers (text part)",
    .paper = "Gemma Team, 2025, Gemma 3 Technical Report",
    .activation = HiddenActivation::gelu_tanh,
    .read_gguf = read_gemma3_gguf,
    .read_huggingface = read_gemma3,
    .names = kPrePostNames,
    .write_gguf = write_gemma3_gguf,
    .write_huggingface = write_gemma3,
};

}  // namespace millrace
