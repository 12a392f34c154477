// Gemma 3n (text part): several residual streams and a low-rank matrix pair next to attention
// (models/blocks/alt_up.cc), an input for each layer (models/blocks/layer_inputs.cc), first layers whose MLPs keep only
// their largest activations, and last layers that read the keys and values of earlier ones. Published code:
// modeling_gemma3n.py of Transformers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"

namespace millrace {
namespace {

constexpr int64_t kGemma3nPattern = 5;   // four layers with a window, then one that sees all keys
constexpr int64_t kGgufLaurelRank = 64;  // the format has no key for it
constexpr int64_t kGgufOwnKeys = 20;     // layers with keys of their own, in files that do not say it
constexpr int64_t kSharedLayers = 15;    // in folders that do not say it; a model of as few layers shares none
constexpr double kGlobalBase = 1000000.0, kLocalBase = 10000.0;

void set_gemma3n(ArchSpec& spec) {
  spec.activation = HiddenActivation::gelu_tanh;
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.width)));
  spec.attention_scale = 1.0f;
  spec.post_norm = true;
  spec.qk_norm = QkNorm::head;
  spec.value_norm = true;
}

// Layers with a window rotate with a base of their own.
void add_local_rope(ArchSpec& spec, double base) {
  RopeSpec local;
  local.rotated = spec.head_dim;
  local.theta = base;
  spec.ropes.resize(1);
  spec.ropes.push_back(local);
  for (LayerSpec& layer : spec.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

// Number of standard deviations above the mean that a normally distributed value exceeds with probability 1 - share.
double normal_quantile(double share) {
  double low = -10, high = 10;
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return low;
}

void set_gate_cut(ConfigReader& config, LayerSpec& layer, double deviations) {
  if (!(deviations > 0.0))
    return config.fail(Error::unsupported(
        fmt::format("{}: activations of which at most half are cut ({} deviations)", config.source(), deviations)));
  layer.gate_cut = static_cast<float>(deviations);
}

// ---- GGUF ----

// One number of deviations a layer; minus infinity cuts nothing.
void read_gguf_cuts(ConfigReader& meta, ArchSpec& spec) {
  const nlohmann::ordered_json* scales = meta.value("activation_sparsity_scale");
  if (!scales) return;
  if (!scales->is_array() || scales->size() != spec.layers.size())
    return meta.fail(Error::corrupt(fmt::format(
        "{}: activation_sparsity_scale must have an entry for each of {} layers", meta.source(), spec.layer_count())));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const double scale = (*scales)[i].is_number() ? (*scales)[i].get<double>() : NAN;
    if (scale != -INFINITY) set_gate_cut(meta, spec.layers[i], scale);
  }
}

void read_gemma3n_gguf(ConfigReader& meta, ArchSpec& spec) {
  set_gemma3n(spec);
  spec.final_softcap = static_cast<float>(meta.number_or("final_logit_softcapping", 30.0));
  spec.layer_input = meta.count_or("embedding_length_per_layer_input", 256, 1, kMaxWidth);
  spec.streams = meta.count_or("altup.num_inputs", 4, 2, kMaxStreams);
  spec.active_stream = meta.count_or("altup.active_idx", 0, 0, spec.streams - 1);
  spec.laurel_rank = meta.count_or("laurel_rank", kGgufLaurelRank, 1, kMaxWidth);
  const int64_t window = meta.count_or("attention.sliding_window", 512, 0, kMaxContext);
  if (meta.is_array("attention.sliding_window_pattern"))
    read_gguf_window_layers(meta, spec, window);
  else
    alternate_windows(spec, window, meta.count_or("attention.sliding_window_pattern", kGemma3nPattern, 0, kMaxLayers));
  add_local_rope(spec, meta.number_or("rope.freq_base_swa", kLocalBase));
  read_gguf_cuts(meta, spec);
  const int64_t shared = std::max<int64_t>(0, spec.layer_count() - kGgufOwnKeys);
  share_last_keys(meta, spec, meta.count_or("attention.shared_kv_layers", shared, 0, spec.layer_count()));
}

// All matrices of streams but the first stand in one tensor, and models/convert/ adds rows to the table of inputs.
void write_gemma3n_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  using Json = nlohmann::ordered_json;
  meta["embedding_length_per_layer_input"] = spec.layer_input;
  meta["altup.num_inputs"] = spec.streams;
  meta["altup.active_idx"] = spec.active_stream;
  if (spec.laurel_rank != kGgufLaurelRank) meta["laurel_rank"] = spec.laurel_rank;
  meta["attention.shared_kv_layers"] =
      std::ranges::count_if(spec.layers, [](const LayerSpec& layer) { return layer.kv_from >= 0; });
  Json widths = Json::array(), windows = Json::array(), cuts = Json::array();
  for (const LayerSpec& layer : spec.layers) {
    widths.push_back(layer.hidden);
    windows.push_back(layer.window > 0);
    cuts.push_back(layer.gate_cut > 0.0f ? static_cast<double>(layer.gate_cut) : -INFINITY);
  }
  meta["feed_forward_length"] = widths;
  meta["attention.sliding_window_pattern"] = windows;
  meta["activation_sparsity_scale"] = cuts;
  if (spec.ropes.size() > 1) meta["rope.freq_base_swa"] = spec.ropes[1].theta;
}

// ---- Hugging Face ----

void read_gemma3n(ConfigReader& config, ArchSpec& spec) {
  set_gemma3n(spec);
  spec.final_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 30.0));
  spec.layer_input = config.count_or("hidden_size_per_layer_input", 256, 1, kMaxWidth);
  config.has("vocab_size_per_layer_input");  // the table's tensor tells
  spec.streams = config.count_or("altup_num_inputs", 4, 2, kMaxStreams);
  spec.active_stream = config.count_or("altup_active_idx", 0, 0, spec.streams - 1);
  config.has("altup_coef_clip");      // a bound of training, within which published coefficients are
  config.has("altup_correct_scale");  // the tensor tells
  spec.laurel_rank = config.count_or("laurel_rank", 64, 1, kMaxWidth);
  read_huggingface_windows(config, spec, kGemma3nPattern);
  const double local = config.number_or("rope_local_base_freq", kLocalBase);
  const bool named = config.has("rope_theta") || config.object("rope_parameters").has("rope_theta");
  if (spec.ropes.size() < 2) {
    if (!named) spec.ropes[0].theta = kGlobalBase;
    add_local_rope(spec, local);
  }
  const std::vector<double> shares = config.numbers_or_empty("activation_sparsity_pattern");
  if (!shares.empty() && shares.size() != spec.layers.size())
    config.fail(Error::corrupt(fmt::format("{}: activation_sparsity_pattern has {} entries for {} layers",
                                           config.source(), shares.size(), spec.layers.size())));
  for (size_t i = 0; i < std::min(shares.size(), spec.layers.size()); ++i)
    if (shares[i] > 0.0) set_gate_cut(config, spec.layers[i], normal_quantile(shares[i]));
  const int64_t shared = spec.layer_count() > kSharedLayers ? kSharedLayers : 0;
  share_last_keys(config, spec, config.count_or("num_kv_shared_layers", shared, 0, spec.layer_count()));
}

const std::vector<TensorName> kGemma3nNames = {
    {"blk.{l}.post_attention_norm.weight", "model.layers.{l}.post_attention_layernorm.weight"},
    {"blk.{l}.ffn_norm.weight", "model.layers.{l}.pre_feedforward_layernorm.weight"},
    {"blk.{l}.post_ffw_norm.weight", "model.layers.{l}.post_feedforward_layernorm.weight"},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
    {"altup_proj.{e}.weight", "model.altup_projections.{e}.weight"},
    {"altup_unembd_proj.{e}.weight", "model.altup_unembed_projections.{e}.weight"},
    {"blk.{l}.inp_gate.weight", "model.layers.{l}.per_layer_input_gate.weight"},
    {"blk.{l}.proj.weight", "model.layers.{l}.per_layer_projection.weight"},
    {"blk.{l}.post_norm.weight", "model.layers.{l}.post_per_layer_input_norm.weight"},
    {"blk.{l}.altup_correct_coef.weight", "model.layers.{l}.altup.correction_coefs.weight"},
    {"blk.{l}.altup_correct_scale.weight", "model.layers.{l}.altup.correct_output_scale"},
    {"blk.{l}.altup_predict_coef.weight", "model.layers.{l}.altup.prediction_coefs.weight"},
    {"blk.{l}.altup_router.weight", "model.layers.{l}.altup.modality_router.weight"},
    {"blk.{l}.altup_router_norm.weight", "model.layers.{l}.altup.router_norm.weight"},
    {"blk.{l}.laurel_l.weight", "model.layers.{l}.laurel.linear_left.weight"},
    {"blk.{l}.laurel_r.weight", "model.layers.{l}.laurel.linear_right.weight"},
    {"blk.{l}.laurel_post_norm.weight", "model.layers.{l}.laurel.post_laurel_norm.weight"},
};

}  // namespace

const Arch kGemma3n = {
    .name = "gemma3n",
    .huggingface = {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"},
    .huggingface_type = "gemma3n_text",
    .summary = "Gemma with four residual streams, an input for each layer, sparse MLPs and shared keys (text part)",
    .paper =
        "Baykal et al., 2023, Alternating Updates for Efficient Transformers; Menghani, Kumar and Kumar, 2024, "
        "LAuReL: Learned Augmented Residual Layer",
    .activation = HiddenActivation::gelu_tanh,
    .sizes_by_layer = true,
    .read_gguf = read_gemma3n_gguf,
    .read_huggingface = read_gemma3n,
    .names = kGemma3nNames,
    .same_tensors = true,
    .gguf_to_folder = false,
    .write_gguf = write_gemma3n_gguf,
};

}  // namespace millrace
