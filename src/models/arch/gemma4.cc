// Gemma 4 (text part). Layers with a window and layers that see all keys have heads of different sizes; the last layers
// may read the keys and values of earlier ones (LayerSpec::kv_from); values are normed, and may be the keys; each
// layer's output has a factor. E2B and E4B have an input for each layer (models/blocks/layer_inputs.cc), 26B-A4B has
// experts beside its MLPs (models/blocks/mlp_and_experts.cc). Published code: modeling_gemma4.py of Transformers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/rope_fields.h"

namespace millrace {
namespace {

constexpr int64_t kGemma4Pattern = 6;  // five layers with a window, then one that sees all keys
constexpr int64_t kGemma4Window = 512;
constexpr int64_t kGlobalHeadDim = 512;
constexpr double kGlobalTheta = 1000000.0;
constexpr double kGlobalRotatedPart = 0.25;

void set_gemma4(ArchSpec& spec) {
  spec.activation = HiddenActivation::gelu_tanh;
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.width)));
  spec.attention_scale = 1.0f;
  spec.post_norm = true;
  spec.qk_norm = QkNorm::head;
  spec.value_norm = true;
  spec.layer_scales = true;
}

// ---- GGUF ----

void read_gemma4_gguf(ConfigReader& meta, ArchSpec& spec) {
  set_gemma4(spec);
  spec.keys_as_values = true;
  spec.layer_input = meta.count_or("embedding_length_per_layer_input", 0, 0, kMaxWidth);
  spec.moe.beside_mlp = spec.moe.experts > 0;
  const int64_t window = meta.count_or("attention.sliding_window", kGemma4Window, 0, kMaxContext);
  const int64_t window_dim = meta.count_or("attention.key_length_swa", spec.head_dim, 1, kMaxWidth);
  if (meta.count_or("attention.value_length_swa", window_dim, 1, kMaxWidth) != window_dim)
    meta.fail(Error::unsupported(
        fmt::format("{}: keys and values of different dims in layers with a window", meta.source())));
  RopeSpec local;
  local.rotated = meta.count_or("rope.dimension_count_swa", window_dim, 0, kMaxWidth);
  local.theta = meta.number_or("rope.freq_base_swa", local.theta);
  spec.ropes.push_back(local);
  read_gguf_window_layers(meta, spec, window);
  for (LayerSpec& layer : spec.layers) {
    layer.rope = layer.window > 0 ? 1 : 0;
    layer.head_dim = layer.window > 0 ? window_dim : spec.head_dim;
  }
  share_last_keys(meta, spec, meta.count_or("attention.shared_kv_layers", 0, 0, spec.layer_count()));
}

// One number if all layers have the same, else one a layer.
nlohmann::ordered_json listed(const ArchSpec& spec, int64_t LayerSpec::*size) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const LayerSpec& layer : spec.layers) out.push_back(layer.*size);
  const bool same = std::ranges::all_of(out, [&](const auto& one) { return one == out.front(); });
  return same && !out.empty() ? out.front() : out;
}

void write_gemma4_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  meta["feed_forward_length"] = listed(spec, &LayerSpec::hidden);
  meta["attention.head_count_kv"] = listed(spec, &LayerSpec::kv_heads);
  meta["attention.shared_kv_layers"] =
      std::ranges::count_if(spec.layers, [](const LayerSpec& layer) { return layer.kv_from >= 0; });
  meta["embedding_length_per_layer_input"] = spec.layer_input;
  auto& windows = meta["attention.sliding_window_pattern"] = nlohmann::ordered_json::array();
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.window > 0);
  const auto local = std::ranges::find_if(spec.layers, [](const LayerSpec& layer) { return layer.window > 0; });
  if (local == spec.layers.end()) return;
  meta["attention.key_length_swa"] = meta["attention.value_length_swa"] = local->head_dim;
  const RopeSpec& rope = spec.ropes[static_cast<size_t>(local->rope)];
  meta["rope.dimension_count_swa"] = rope.rotated;
  meta["rope.freq_base_swa"] = rope.theta;
}

// ---- Hugging Face ----

// Layers that see all keys have their own sizes of heads: in fields of the whole model, or layer by layer.
void read_gemma4_heads(ConfigReader& config, ArchSpec& spec) {
  const int64_t window_dim = spec.head_dim;
  const bool apart = config.flag_or("attention_k_eq_v", false);  // only then do their KV heads differ, too
  const int64_t global_dim = config.count_or("global_head_dim", kGlobalHeadDim, 1, kMaxWidth);
  const int64_t global_heads = config.count_or("num_global_key_value_heads", spec.kv_heads, 1, kMaxWidth);
  spec.keys_as_values = apart;
  const ConfigReader by_layer = config.object("per_layer_config");
  int64_t widest = window_dim;
  for (int64_t i = 0; i < spec.layer_count(); ++i) {
    LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    const bool all = layer.window == 0, stated = config.has("per_layer_config");
    ConfigReader own = by_layer.object(std::to_string(i));
    layer.head_dim = own.count_or("head_dim", all && !stated ? global_dim : window_dim, 1, kMaxWidth);
    layer.kv_heads =
        own.count_or("num_key_value_heads", all && apart && !stated ? global_heads : spec.kv_heads, 1, kMaxWidth);
    for (const std::string& key : own.keys())
      if (!own.was_read(key))
        own.fail(Error::unsupported(fmt::format("{}: {}: unknown field of one layer", own.source(), key)));
    if (const auto status = own.status(); !status.ok()) config.fail(status.error());
    if (all) widest = std::max(widest, layer.head_dim);
  }
  spec.head_dim = widest;
}

void read_gemma4_ropes(ConfigReader& config, ArchSpec& spec, int64_t window_dim) {
  if (spec.ropes.size() > 1) {
    const RopeSpec local = spec.ropes[1];
    read_huggingface_ropes(config, spec);  // again, with the sizes of the layers that see all keys
    spec.ropes[1] = local;
    return;
  }
  RopeSpec full;
  full.theta = kGlobalTheta;
  rotate_part(full, spec.head_dim, kGlobalRotatedPart, 1.0);
  RopeSpec local;
  local.rotated = window_dim;
  spec.ropes = {full, local};
}

void read_gemma4(ConfigReader& config, ArchSpec& spec) {
  set_gemma4(spec);
  if (config.text_or("use_bidirectional_attention", "vision") != "vision")
    config.fail(Error::unsupported(
        fmt::format("{}: use_bidirectional_attention: tokens that see later ones", config.source())));
  spec.final_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0.0));
  spec.layer_input = config.count_or("hidden_size_per_layer_input", 256, 0, kMaxWidth);
  config.has("vocab_size_per_layer_input");  // the table's tensor tells
  read_huggingface_windows(config, spec, kGemma4Pattern);
  if (!spec.layers.empty()) spec.layers.back().window = 0;
  const int64_t window_dim = spec.head_dim;
  read_gemma4_heads(config, spec);
  read_gemma4_ropes(config, spec, window_dim);
  if (config.flag_or("enable_moe_block", false)) {
    spec.moe.experts = config.count("num_experts", 1, kMaxExperts);
    spec.moe.used = config.count("top_k_experts", 1, spec.moe.experts);
    spec.moe.hidden = config.count("moe_intermediate_size", 1, kMaxWidth);
    spec.moe.beside_mlp = true;
    for (LayerSpec& layer : spec.layers) layer.moe = true;
  }
  const int64_t shared = config.count_or("num_kv_shared_layers", 0, 0, spec.layer_count());
  const bool wide = config.flag_or("use_double_wide_mlp", false);
  for (int64_t i = spec.layer_count() - shared; wide && shared < spec.layer_count() && i < spec.layer_count(); ++i)
    spec.layers[static_cast<size_t>(i)].hidden = 2 * spec.hidden;
  share_last_keys(config, spec, shared);
}

const std::vector<TensorName> kGemma4Names = {
    {"blk.{l}.post_attention_norm.weight", "model.layers.{l}.post_attention_layernorm.weight"},
    {"blk.{l}.ffn_norm.weight", "model.layers.{l}.pre_feedforward_layernorm.weight"},
    {"blk.{l}.post_ffw_norm.weight", "model.layers.{l}.post_feedforward_layernorm.weight"},
    {"blk.{l}.layer_output_scale.weight", "model.layers.{l}.layer_scalar"},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
    {"blk.{l}.inp_gate.weight", "model.layers.{l}.per_layer_input_gate.weight"},
    {"blk.{l}.proj.weight", "model.layers.{l}.per_layer_projection.weight"},
    {"blk.{l}.post_norm.weight", "model.layers.{l}.post_per_layer_input_norm.weight"},
    {"blk.{l}.ffn_gate_inp.weight", "model.layers.{l}.router.proj.weight"},
    {"blk.{l}.ffn_gate_inp.scale", "model.layers.{l}.router.scale"},
    {"blk.{l}.ffn_down_exps.scale", "model.layers.{l}.router.per_expert_scale"},
    {"blk.{l}.ffn_gate_up_exps.weight", "model.layers.{l}.experts.gate_up_proj"},
    {"blk.{l}.ffn_down_exps.weight", "model.layers.{l}.experts.down_proj"},
    {"blk.{l}.pre_ffw_norm_2.weight", "model.layers.{l}.pre_feedforward_layernorm_2.weight"},
    {"blk.{l}.post_ffw_norm_1.weight", "model.layers.{l}.post_feedforward_layernorm_1.weight"},
    {"blk.{l}.post_ffw_norm_2.weight", "model.layers.{l}.post_feedforward_layernorm_2.weight"},
};

}  // namespace

const Arch kGemma4 = {
    .name = "gemma4",
    .huggingface = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "gemma4"},
    .huggingface_type = "gemma4_text",
    .summary = "Gemma with shared keys, an input for each layer, and experts next to MLPs (text part)",
    .paper = "Google DeepMind, 2026, Gemma 4 model card",
    .activation = HiddenActivation::gelu_tanh,
    .sizes_by_layer = true,
    .read_gguf = read_gemma4_gguf,
    .read_huggingface = read_gemma4,
    .names = kGemma4Names,
    .same_tensors = true,
    .gguf_to_folder = false,
    .write_gguf = write_gemma4_gguf,
};

}  // namespace millrace
