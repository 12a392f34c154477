// Qwen3-Next and Qwen3.5: three of four layers have a gated delta net, the others attention whose output has a gate.
// GGUF files hold the norms' weights with 1 added, and -exp(A_log); those of Qwen3.5 have the value heads in another
// order than its folders. The vision part is left out, and a layer that predicts further tokens is of the drafter mtp
// (models/draft_heads/mtp_layer.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/rope_fields.h"
#include "models/arch/writing.h"
#include "models/mixers/mixer.h"

namespace millrace {
namespace {

constexpr int64_t kFullAttentionInterval = 4;
constexpr double kRotatedPart = 0.25;

void set_delta_layer(LayerSpec& layer, const SsmSpec& ssm) {
  layer.mixers = {{&kGatedDeltaNetMixer}};
  layer.attention_gate = false;
  layer.ssm = ssm;
}

// ---- GGUF ----

SsmSpec read_gguf_sizes(ConfigReader& meta, bool tiled) {
  SsmSpec ssm{.conv_bias = false, .tiled = tiled};
  ssm.inner = meta.count("ssm.inner_size", 1, kMaxWidth);
  ssm.state = meta.count("ssm.state_size", 1, kMaxState);
  ssm.taps = meta.count("ssm.conv_kernel", 1, kMaxTaps);
  ssm.heads = meta.count("ssm.time_step_rank", 1, kMaxWidth);
  ssm.groups = meta.count("ssm.group_count", 1, kMaxWidth);
  return ssm;
}

void set_gguf_layers(ConfigReader& meta, ArchSpec& spec, bool tiled) {
  const auto blocks = static_cast<size_t>(spec.layer_count());
  // Layers that predict further tokens come last, and are not part of the model itself.
  spec.layers.resize(blocks - static_cast<size_t>(meta.count_or("nextn_predict_layers", 0, 0, spec.layer_count() - 1)));
  const int64_t interval = meta.count_or("full_attention_interval", kFullAttentionInterval, 1, kMaxLayers);
  const nlohmann::ordered_json* stated = meta.value("attention.recurrent_layers");
  if (stated && (!stated->is_array() || stated->size() != blocks))
    return meta.fail(Error::corrupt(
        fmt::format("{}: attention.recurrent_layers must have an entry for each of {} blocks", meta.source(), blocks)));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].attention_gate = true;
    const bool recurrent =
        stated ? (*stated)[i] == true || (*stated)[i] == 1 : (static_cast<int64_t>(i) + 1) % interval != 0;
    if (recurrent) set_delta_layer(spec.layers[i], read_gguf_sizes(meta, tiled));
  }
}

void read_delta_gguf(ConfigReader& meta, ArchSpec& spec, bool tiled) {
  spec.qk_norm = QkNorm::head;
  spec.moe.shared_gate = spec.moe.shared_hidden > 0;
  set_gguf_layers(meta, spec, tiled);
}

bool is_delta_net(const LayerSpec& layer) { return layer.mixers.front().mixer == &kGatedDeltaNetMixer; }

// Every n-th layer has attention, and the others a delta net; 0: there is no such n.
int64_t attention_interval(const ArchSpec& spec) {
  for (int64_t n = 1; n <= spec.layer_count(); ++n) {
    int64_t i = 0;
    while (i < spec.layer_count() && is_delta_net(spec.layers[static_cast<size_t>(i)]) == ((i + 1) % n != 0)) ++i;
    if (i == spec.layer_count()) return n;
  }
  return 0;
}

void write_delta_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  const auto layer = std::ranges::find_if(spec.layers, is_delta_net);
  if (layer != spec.layers.end()) {
    meta["ssm.inner_size"] = layer->ssm.inner;
    meta["ssm.state_size"] = layer->ssm.state;
    meta["ssm.conv_kernel"] = layer->ssm.taps;
    meta["ssm.time_step_rank"] = layer->ssm.heads;
    meta["ssm.group_count"] = layer->ssm.groups;
  }
  if (const int64_t interval = attention_interval(spec)) {
    meta["full_attention_interval"] = interval;
    return;
  }
  auto& recurrent = meta["attention.recurrent_layers"] = nlohmann::ordered_json::array();
  for (const LayerSpec& one : spec.layers) recurrent.push_back(is_delta_net(one));
}

void read_qwen3next_gguf(ConfigReader& meta, ArchSpec& spec) { read_delta_gguf(meta, spec, false); }
void read_qwen35_gguf(ConfigReader& meta, ArchSpec& spec) { read_delta_gguf(meta, spec, true); }

// ---- Hugging Face ----

// Which layers have attention.
std::vector<bool> read_full_layers(ConfigReader& config, const ArchSpec& spec) {
  const int64_t interval = config.count_or("full_attention_interval", kFullAttentionInterval, 1, kMaxLayers);
  const std::vector<std::string> types = config.texts_or_empty("layer_types");
  std::vector<bool> full(spec.layers.size());
  if (!types.empty() && types.size() != full.size()) {
    config.fail(Error::corrupt(
        fmt::format("{}: layer_types has {} entries for {} layers", config.source(), types.size(), full.size())));
    return full;
  }
  for (size_t i = 0; i < full.size(); ++i) {
    full[i] = types.empty() ? (static_cast<int64_t>(i) + 1) % interval == 0 : types[i] == "full_attention";
    if (!types.empty() && !full[i] && types[i] != "linear_attention")
      config.fail(Error::unsupported(fmt::format("{}: layer type '{}'", config.source(), types[i])));
  }
  return full;
}

// Windows are off in all published files, which may state a size all the same.
void refuse_windows(ConfigReader& config) {
  if (config.flag_or("use_sliding_window", false))
    config.fail(Error::unsupported(fmt::format("{}: use_sliding_window: windows of attention", config.source())));
  for (const char* key : {"sliding_window", "max_window_layers"}) config.has(key);
}

void read_qwen35(ConfigReader& config, ArchSpec& spec) {
  refuse_windows(config);
  spec.qk_norm = QkNorm::head;
  spec.norm_offset = 1.0f;
  if (!config.has("partial_rotary_factor") && rope_object_number(config, "partial_rotary_factor") == 0.0)
    for (RopeSpec& rope : spec.ropes)
      rope.rotated = static_cast<int64_t>(kRotatedPart * static_cast<double>(spec.head_dim));
  const int64_t heads = config.count_or("linear_num_value_heads", 32, 1, kMaxWidth);
  const int64_t value_dim = config.count_or("linear_value_head_dim", 128, 1, kMaxWidth);
  SsmSpec ssm{.log_a = true, .conv_bias = false};
  ssm.inner = heads * value_dim;
  ssm.state = config.count_or("linear_key_head_dim", 128, 1, kMaxState);
  ssm.taps = config.count_or("linear_conv_kernel_dim", 4, 1, kMaxTaps);
  ssm.heads = heads;
  ssm.groups = config.count_or("linear_num_key_heads", 16, 1, kMaxWidth);
  if (ssm.inner > kMaxWidth)
    config.fail(Error::corrupt(fmt::format("{}: {} value heads of {} dims", config.source(), heads, value_dim)));
  const bool gate = config.flag_or("attn_output_gate", true);
  const std::vector<bool> full = read_full_layers(config, spec);
  for (size_t i = 0; i < full.size(); ++i) {
    spec.layers[i].attention_gate = gate;
    if (!full[i]) set_delta_layer(spec.layers[i], ssm);
  }
}

void read_qwen3next(ConfigReader& config, ArchSpec& spec) {
  read_qwen35(config, spec);
  read_huggingface_moe(config, spec, "num_experts", "moe_intermediate_size");
  spec.moe.normalize = config.flag_or("norm_topk_prob", true);
  spec.moe.shared_hidden = config.count_or("shared_expert_intermediate_size", 0, 0, kMaxWidth);
  spec.moe.shared_gate = spec.moe.shared_hidden > 0;
  read_huggingface_moe_layers(config, spec);
}

void write_delta(const ArchSpec& spec, nlohmann::ordered_json& config) {
  const auto layer = std::ranges::find_if(spec.layers, is_delta_net);
  if (layer != spec.layers.end()) {
    config["linear_num_key_heads"] = layer->ssm.groups;
    config["linear_num_value_heads"] = layer->ssm.heads;
    config["linear_key_head_dim"] = layer->ssm.state;
    config["linear_value_head_dim"] = layer->ssm.inner / layer->ssm.heads;
    config["linear_conv_kernel_dim"] = layer->ssm.taps;
  }
  if (const int64_t interval = attention_interval(spec)) config["full_attention_interval"] = interval;
  auto& types = config["layer_types"] = nlohmann::ordered_json::array();
  for (const LayerSpec& one : spec.layers) types.push_back(is_delta_net(one) ? "linear_attention" : "full_attention");
  // A folder that does not state it rotates a quarter of each head.
  config["partial_rotary_factor"] =
      static_cast<double>(spec.ropes[0].rotated) / static_cast<double>(std::max<int64_t>(1, spec.head_dim));
  if (spec.moe.experts > 0) write_huggingface_moe(spec, config);
}

// Qwen3.5's folders have all numbers of rotations in one object.
void write_qwen35(const ArchSpec& spec, nlohmann::ordered_json& config) {
  write_delta(spec, config);
  config["attn_output_gate"] = true;
  nlohmann::ordered_json rope = {{"rope_type", "default"}};
  if (const auto scaling = config.find("rope_scaling"); scaling != config.end()) rope = *scaling;
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) rope[key] = config[key];
  for (const char* key : {"rope_theta", "partial_rotary_factor", "rope_scaling"}) config.erase(key);
  config["rope_parameters"] = rope;
}

// Folders fuse the projections of Qwen3-Next by key head; loader/grouped_rows.h separates the first of them.
const std::vector<TensorName> kDeltaNames = {
    {"blk.{l}.attn_qkv.weight", "model.layers.{l}.linear_attn.in_proj_qkv.weight"},
    {"blk.{l}.attn_gate.weight", "model.layers.{l}.linear_attn.in_proj_z.weight"},
    {"blk.{l}.ssm_ba.weight", "model.layers.{l}.linear_attn.in_proj_ba.weight"},
    {"blk.{l}.ssm_beta.weight", "model.layers.{l}.linear_attn.in_proj_b.weight"},
    {"blk.{l}.ssm_alpha.weight", "model.layers.{l}.linear_attn.in_proj_a.weight"},
    {"blk.{l}.ssm_conv1d.weight", "model.layers.{l}.linear_attn.conv1d.weight"},
    {"blk.{l}.ssm_dt.bias", "model.layers.{l}.linear_attn.dt_bias"},
    {"blk.{l}.ssm_a", "model.layers.{l}.linear_attn.A_log"},
    {"blk.{l}.ssm_norm.weight", "model.layers.{l}.linear_attn.norm.weight"},
    {"blk.{l}.ssm_out.weight", "model.layers.{l}.linear_attn.out_proj.weight"},
    // Stacked experts of Qwen3.5; those of Qwen3-Next are stored one by one.
    {"blk.{l}.ffn_gate_up_exps.weight", "model.layers.{l}.mlp.experts.gate_up_proj"},
    {"blk.{l}.ffn_down_exps.weight", "model.layers.{l}.mlp.experts.down_proj"},
};
const std::vector<GgufName> kDeltaGgufNames = {{"blk.{l}.ffn_norm.weight", "blk.{l}.post_attention_norm.weight"}};

}  // namespace

const Arch kQwen3Next = {
    .name = "qwen3next",
    .huggingface = {"Qwen3NextForCausalLM"},
    .huggingface_type = "qwen3_next",
    .summary = "Gated delta nets, gated attention in every fourth layer, and a mixture of experts",
    .paper = "Yang et al., 2025, Qwen3 Technical Report; Yang, Kautz and Hatamizadeh, 2024, Gated Delta Networks",
    .read_gguf = read_qwen3next_gguf,
    .read_huggingface = read_qwen3next,
    .names = kDeltaNames,
    .gguf_names = kDeltaGgufNames,
    .write_gguf = write_delta_gguf,
    .write_huggingface = write_delta,
};
const Arch kQwen35 = {
    .name = "qwen35",
    .huggingface = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", "qwen3_5"},
    .huggingface_type = "qwen3_5_text",
    .summary = "Gated delta nets, and gated attention in every fourth layer",
    .paper = "Yang, Kautz and Hatamizadeh, 2024, Gated Delta Networks: Improving Mamba2 with Delta Rule",
    .read_gguf = read_qwen35_gguf,
    .read_huggingface = read_qwen35,
    .names = kDeltaNames,
    .gguf_names = kDeltaGgufNames,
    .write_gguf = write_delta_gguf,
    .write_huggingface = write_qwen35,
};
const Arch kQwen35Moe = {
    .name = "qwen35moe",
    .huggingface = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"},
    .huggingface_type = "qwen3_5_moe_text",
    .summary = "Qwen3.5 with fine-grained experts and a gated shared expert",
    .paper = "Yang, Kautz and Hatamizadeh, 2024, Gated Delta Networks: Improving Mamba2 with Delta Rule",
    .read_gguf = read_qwen35_gguf,
    .read_huggingface = read_qwen3next,
    .names = kDeltaNames,
    .gguf_names = kDeltaGgufNames,
    .stacked_experts = true,
    .write_gguf = write_delta_gguf,
    .write_huggingface = write_qwen35,
};

}  // namespace millrace
