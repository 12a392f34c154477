// DeepSeek-V2 and V3: latent attention, and a mixture of experts with shared experts, groups and dense first layers.
// GGUF files call both "deepseek2".
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/gguf_rope.h"
#include "models/arch/rope_fields.h"
#include "models/arch/writing.h"
#include "models/blocks/rope.h"
#include "models/mixers/mixer.h"

namespace millrace {
namespace {

constexpr int64_t kMaxGroups = 64;                               // the router keeps them in a word
enum GatingFunction { kSoftmaxGating = 1, kSigmoidGating = 2 };  // frozen: GGUF's expert_gating_func

void set_latent(ArchSpec& spec, const LatentSpec& sizes, double scores_factor) {
  spec.kv_heads = 1;
  spec.head_dim = sizes.rank + sizes.rotated;
  spec.rope_style = RopeStyle::interleaved;
  spec.attention_scale =
      static_cast<float>(scores_factor * scores_factor / std::sqrt(static_cast<double>(sizes.query())));
  spec.ropes[0].rotated = sizes.rotated;
  for (LayerSpec& layer : spec.layers) {
    layer.mixers = {{&kLatentMixer}};
    layer.latent = sizes;
    layer.head_dim = spec.head_dim;
    layer.value_dim = sizes.rank;
  }
}

void check_groups(ConfigReader& config, const MoeSpec& moe) {
  const bool whole = moe.experts % moe.groups == 0;
  if (whole && moe.used <= moe.groups_used * (moe.experts / moe.groups)) return;
  config.fail(Error::corrupt(fmt::format("{}: {} experts of {}, in {} of {} groups", config.source(), moe.used,
                                         moe.experts, moe.groups_used, moe.groups)));
}

// ---- GGUF ----

LatentSpec read_gguf_latent(ConfigReader& meta, ArchSpec& spec) {
  LatentSpec sizes;
  sizes.rank = meta.count("attention.kv_lora_rank", 1, kMaxWidth);
  sizes.query_rank = meta.count_or("attention.q_lora_rank", 0, 0, kMaxWidth);
  sizes.rotated = meta.count("rope.dimension_count", 2, kMaxWidth);
  // Newer files have the stored key and value under the plain names.
  const char* key = meta.has("attention.key_length_mla") ? "attention.key_length_mla" : "attention.key_length";
  const char* value = meta.has("attention.value_length_mla") ? "attention.value_length_mla" : "attention.value_length";
  sizes.unrotated = meta.count(key, 1, kMaxWidth) - sizes.rotated;
  sizes.value = meta.count(value, 1, kMaxWidth);
  spec.heads = meta.count("attention.head_count", 1, kMaxWidth);
  if (meta.has("attention.temperature_scale"))
    meta.fail(Error::unsupported(fmt::format("{}: scores whose scale depends on the position", meta.source())));
  return sizes;
}

void read_gguf_experts(ConfigReader& meta, ArchSpec& spec) {
  MoeSpec& moe = spec.moe;
  moe.experts = meta.count_or("expert_count", 0, 0, kMaxExperts);
  if (moe.experts == 0) return;
  moe.used = meta.count("expert_used_count", 1, moe.experts);
  moe.hidden = meta.count("expert_feed_forward_length", 1, kMaxWidth);
  moe.shared_hidden = meta.count_or("expert_shared_count", 0, 0, kMaxWidth / moe.hidden) * moe.hidden;
  moe.normalize = meta.flag_or("expert_weights_norm", false);
  const double scale = meta.number_or("expert_weights_scale", 1.0);
  moe.scale = scale == 0.0 ? 1.0f : static_cast<float>(scale);  // 0: none
  const int64_t gating = meta.count_or("expert_gating_func", kSoftmaxGating, 0, 100);
  if (gating > kSigmoidGating)
    meta.fail(Error::unsupported(fmt::format("{}: expert_gating_func {}", meta.source(), gating)));
  moe.sigmoid = gating == kSigmoidGating;
  moe.groups = std::max<int64_t>(1, meta.count_or("expert_group_count", 1, 0, kMaxGroups));
  moe.groups_used = std::max<int64_t>(1, meta.count_or("expert_group_used_count", moe.groups, 0, moe.groups));
  moe.group_best = moe.sigmoid ? 2 : 1;
  check_groups(meta, moe);
  const int64_t dense = meta.count_or("leading_dense_block_count", 0, 0, kMaxLayers);
  for (int64_t i = dense; i < spec.layer_count(); ++i) spec.layers[static_cast<size_t>(i)].moe = true;
}

void read_deepseek_gguf(ConfigReader& meta, ArchSpec& spec) {
  spec.context = meta.count("context_length", 1, kMaxContext);
  spec.width = meta.count("embedding_length", 1, kMaxWidth);
  spec.hidden = meta.count("feed_forward_length", 1, kMaxWidth);
  spec.norm_eps = static_cast<float>(meta.number_or("attention.layer_norm_rms_epsilon", 1e-6));
  const int64_t blocks = meta.count("block_count", 1, kMaxLayers);
  // Layers that predict further tokens come last, and are not part of the model itself.
  const int64_t layers = blocks - meta.count_or("nextn_predict_layers", 0, 0, blocks - 1);
  spec.layers.assign(static_cast<size_t>(layers), LayerSpec{});
  const LatentSpec sizes = read_gguf_latent(meta, spec);
  const GgufRope stored = read_gguf_rope(meta, sizes.rotated, spec.context, YarnLogUnit::tenth);
  spec.ropes = {stored.rope};
  const RopeSpec::Scaling scaling = stored.rope.scaling;
  if (scaling != RopeSpec::Scaling::none && scaling != RopeSpec::Scaling::yarn)
    meta.fail(Error::unsupported(
        fmt::format("{}: rope scaling '{}'", meta.source(), meta.text_or("rope.scaling.type", "linear"))));
  read_gguf_experts(meta, spec);
  set_latent(spec, sizes, yarn_mscale(stored.rope.factor, stored.mscale_all_dim));
}

// ---- Hugging Face ----

// The defaults of DeepseekV3's class differ.
void read_router(ConfigReader& config, MoeSpec& moe, bool v3) {
  const std::string scores = config.text_or("scoring_func", v3 ? "sigmoid" : "softmax");
  const std::string method = config.text_or("topk_method", v3 ? "noaux_tc" : "greedy");
  const bool limited = method == "group_limited_greedy" || method == "noaux_tc";
  if ((scores != "sigmoid" && scores != "softmax") || (!limited && method != "greedy" && method != "gready"))
    config.fail(
        Error::unsupported(fmt::format("{}: experts selected by '{}' of '{}'", config.source(), method, scores)));
  moe.sigmoid = scores == "sigmoid";
  moe.normalize = config.flag_or("norm_topk_prob", v3);
  moe.scale = static_cast<float>(config.number_or("routed_scaling_factor", 1.0));
  if (!limited) return;
  moe.groups = config.count_or("n_group", 1, 1, kMaxGroups);
  moe.groups_used = config.count_or("topk_group", moe.groups, 1, moe.groups);
  moe.group_best = method == "noaux_tc" ? 2 : 1;
  check_groups(config, moe);
}

void read_experts(ConfigReader& config, ArchSpec& spec, bool v3) {
  MoeSpec& moe = spec.moe;
  moe.experts = config.count_or("n_routed_experts", 0, 0, kMaxExperts);
  if (moe.experts == 0) return;
  moe.used = config.count("num_experts_per_tok", 1, moe.experts);
  moe.hidden = config.count("moe_intermediate_size", 1, kMaxWidth);
  moe.shared_hidden = config.count_or("n_shared_experts", 0, 0, kMaxWidth / moe.hidden) * moe.hidden;
  read_router(config, moe, v3);
  const int64_t dense = config.count_or("first_k_dense_replace", 0, 0, kMaxLayers);
  const int64_t every = config.count_or("moe_layer_freq", 1, 1, kMaxLayers);
  for (int64_t i = dense; i < spec.layer_count(); ++i) spec.layers[static_cast<size_t>(i)].moe = i % every == 0;
}

void read_any_huggingface(ConfigReader& config, ArchSpec& spec, bool v3) {
  LatentSpec sizes;
  sizes.rank = config.count("kv_lora_rank", 1, kMaxWidth);
  sizes.query_rank = config.count_or("q_lora_rank", 0, 0, kMaxWidth);
  sizes.rotated = config.count("qk_rope_head_dim", 2, kMaxWidth);
  sizes.unrotated = config.count("qk_nope_head_dim", 1, kMaxWidth);
  sizes.value = config.count("v_head_dim", 1, kMaxWidth);
  if (config.flag_or("attention_bias", false))
    config.fail(Error::unsupported(fmt::format("{}: biases of latent attention", config.source())));
  if (!config.flag_or("rope_interleave", true))
    config.fail(Error::unsupported(fmt::format("{}: latent attention that rotates halves", config.source())));
  if (spec.ropes[0].rotated != spec.head_dim)
    config.fail(
        Error::unsupported(fmt::format("{}: latent attention that rotates a part of its dims", config.source())));
  read_experts(config, spec, v3);
  // As Transformers' DeepseekV3Attention: under any scaling of positions, mscale_all_dim changes the scores. The factor
  // of cos and sin is that of every family (read_huggingface_ropes()).
  const RopeSpec& rope = spec.ropes[0];
  const bool scaled = rope.scaling != RopeSpec::Scaling::none;
  set_latent(spec, sizes, scaled ? yarn_mscale(rope.factor, rope_object_number(config, "mscale_all_dim")) : 1.0);
}

void read_v2(ConfigReader& config, ArchSpec& spec) { read_any_huggingface(config, spec, false); }
void read_v3(ConfigReader& config, ArchSpec& spec) { read_any_huggingface(config, spec, true); }

// ---- conversion ----

constexpr double kNoTemperature = 1e-6;  // factors this near to 1 are 1

int64_t dense_layers(const ArchSpec& spec) {
  return std::ranges::find_if(spec.layers, [](const LayerSpec& layer) { return layer.moe; }) - spec.layers.begin();
}

void write_gguf_experts(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  const MoeSpec& moe = spec.moe;
  meta["leading_dense_block_count"] = dense_layers(spec);
  if (moe.experts == 0) return;
  meta.erase("expert_shared_feed_forward_length");
  meta["expert_feed_forward_length"] = moe.hidden;
  meta["expert_shared_count"] = moe.shared_hidden / moe.hidden;
  meta["expert_weights_scale"] = moe.scale;
  meta["expert_weights_norm"] = moe.normalize;
  meta["expert_gating_func"] = static_cast<int>(moe.sigmoid ? kSigmoidGating : kSoftmaxGating);
  if (moe.groups == 1) return;
  meta["expert_group_count"] = moe.groups;
  meta["expert_group_used_count"] = moe.groups_used;
}

// The scores' factor beyond 1 / sqrt(dims of a query) is the square of YaRN's temperature.
double squared_temperature(const ArchSpec& spec, const LatentSpec& sizes) {
  return static_cast<double>(spec.attention_scale) * std::sqrt(static_cast<double>(sizes.query()));
}

bool has_temperature(const RopeSpec& rope, double squared) {
  return rope.scaling == RopeSpec::Scaling::yarn && rope.factor > 1.0 && std::abs(squared - 1.0) > kNoTemperature;
}

// GGUF states the temperature by the multiplier of its logarithm (read_gguf_rope).
void write_gguf_temperature(const ArchSpec& spec, const LatentSpec& sizes, nlohmann::ordered_json& meta) {
  const RopeSpec& rope = spec.ropes[0];
  const double squared = squared_temperature(spec, sizes);
  if (!has_temperature(rope, squared)) return;
  meta["rope.scaling.yarn_log_multiplier"] = (std::sqrt(squared) - 1.0) / std::log(rope.factor);
  // With the multiplier, this key is the whole factor of cos and sin, and 1 if it is absent.
  meta.erase("rope.scaling.attn_factor");
  const double scale = rope_scale(rope);
  if (std::abs(scale - 1.0) > kNoTemperature) meta["rope.scaling.attn_factor"] = scale;
}

void write_deepseek_gguf(const ArchSpec& spec, nlohmann::ordered_json& meta) {
  const LatentSpec& sizes = spec.layers.front().latent;
  meta.erase("attention.scale");
  // The plain names are those of the stored row, and the others those of a head's query and values.
  meta["attention.value_length"] = sizes.rank;
  meta["attention.key_length_mla"] = sizes.query();
  meta["attention.value_length_mla"] = sizes.value;
  meta["attention.kv_lora_rank"] = sizes.rank;
  if (sizes.query_rank > 0) meta["attention.q_lora_rank"] = sizes.query_rank;
  write_gguf_experts(spec, meta);
  write_gguf_temperature(spec, sizes, meta);
}

// mscale_all_dim of a temperature whose square passed through a float: the number with few digits that is meant.
double all_dim_of(double squared, double factor) {
  constexpr double kDigits = 1e4, kFloatError = 1e-5;
  const double exact = 10.0 * (std::sqrt(squared) - 1.0) / std::log(factor);
  const double few = std::round(exact * kDigits) / kDigits;
  return std::abs(few - exact) < kFloatError ? few : exact;
}

void write_temperature(const ArchSpec& spec, const LatentSpec& sizes, nlohmann::ordered_json& config) {
  const RopeSpec& rope = spec.ropes[0];
  const auto scaling = config.find("rope_scaling");
  if (scaling == config.end() || rope.scaling != RopeSpec::Scaling::yarn) return;
  (*scaling)["type"] = "yarn";
  const double squared = squared_temperature(spec, sizes);
  if (!has_temperature(rope, squared)) return;
  const double all_dim = all_dim_of(squared, rope.factor);
  (*scaling)["mscale_all_dim"] = all_dim;
  if (std::abs(static_cast<double>(rope_scale(rope)) - 1.0) > kNoTemperature) return;
  // The factors of cos and sin cancel.
  (*scaling)["mscale"] = all_dim;
  scaling->erase("attention_factor");
}

void write_experts(const ArchSpec& spec, nlohmann::ordered_json& config) {
  const MoeSpec& moe = spec.moe;
  if (moe.experts == 0) return;
  config["n_routed_experts"] = moe.experts;
  config["num_experts_per_tok"] = moe.used;
  config["moe_intermediate_size"] = moe.hidden;
  config["n_shared_experts"] = moe.shared_hidden / moe.hidden;
  config["routed_scaling_factor"] = plain_number(moe.scale);
  config["norm_topk_prob"] = moe.normalize;
  config["first_k_dense_replace"] = dense_layers(spec);
  config["moe_layer_freq"] = 1;
  config["scoring_func"] = moe.sigmoid ? "sigmoid" : "softmax";
  config["topk_method"] = moe.sigmoid ? "noaux_tc" : moe.groups > 1 ? "group_limited_greedy" : "greedy";
  config["n_group"] = moe.groups;
  config["topk_group"] = moe.groups_used;
}

void write_deepseek(const ArchSpec& spec, nlohmann::ordered_json& config) {
  const LatentSpec& sizes = spec.layers.front().latent;
  config.erase("partial_rotary_factor");
  config["num_key_value_heads"] = spec.heads;
  config["head_dim"] = sizes.rotated;
  config["kv_lora_rank"] = sizes.rank;
  config["q_lora_rank"] = sizes.query_rank > 0 ? nlohmann::ordered_json(sizes.query_rank) : nullptr;
  config["qk_rope_head_dim"] = sizes.rotated;
  config["qk_nope_head_dim"] = sizes.unrotated;
  config["v_head_dim"] = sizes.value;
  write_experts(spec, config);
  write_temperature(spec, sizes, config);
}

// V3's files.
bool scores_by_sigmoids(const ArchSpec& spec) { return spec.moe.sigmoid; }

// Files of models without experts state them too.
const std::vector<std::string_view> kUnreadWithoutExperts = {
    "routed_scaling_factor", "norm_topk_prob", "expert_weights_scale", "expert_weights_norm", "expert_gating_func"};

const std::vector<TensorName> kNames = {
    {"blk.{l}.attn_q_a.weight", "model.layers.{l}.self_attn.q_a_proj.weight"},
    {"blk.{l}.attn_q_a_norm.weight", "model.layers.{l}.self_attn.q_a_layernorm.weight"},
    {"blk.{l}.attn_q_b.weight", "model.layers.{l}.self_attn.q_b_proj.weight"},
    {"blk.{l}.attn_kv_a_mqa.weight", "model.layers.{l}.self_attn.kv_a_proj_with_mqa.weight"},
    {"blk.{l}.attn_kv_a_norm.weight", "model.layers.{l}.self_attn.kv_a_layernorm.weight"},
    {"blk.{l}.attn_kv_b.weight", "model.layers.{l}.self_attn.kv_b_proj.weight"},
    {"blk.{l}.exp_probs_b.bias", "model.layers.{l}.mlp.gate.e_score_correction_bias"},
    {"blk.{l}.ffn_gate_shexp.weight", "model.layers.{l}.mlp.shared_experts.gate_proj.weight"},
    {"blk.{l}.ffn_up_shexp.weight", "model.layers.{l}.mlp.shared_experts.up_proj.weight"},
    {"blk.{l}.ffn_down_shexp.weight", "model.layers.{l}.mlp.shared_experts.down_proj.weight"},
};

}  // namespace

const Arch kDeepseek2 = {
    .name = "deepseek2",
    .huggingface = {"DeepseekV2ForCausalLM"},
    .huggingface_type = "deepseek_v2",
    .summary = "Latent attention, and experts in addition to shared ones; in GGUF files also V3",
    .paper = "DeepSeek-AI, 2024, DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model",
    .gguf_rope = RopeStyle::interleaved,
    .common_gguf = false,
    .read_gguf = read_deepseek_gguf,
    .read_huggingface = read_v2,
    .harmless_fields = kUnreadWithoutExperts,
    .names = kNames,
    .write_gguf = write_deepseek_gguf,
    .write_huggingface = write_deepseek,
};

const Arch kDeepseek3 = {
    .name = "deepseek3",
    .huggingface = {"DeepseekV3ForCausalLM"},
    .huggingface_type = "deepseek_v3",
    .summary = "DeepSeek-V2 with experts scored by sigmoids and selected with a bias",
    .paper = "DeepSeek-AI, 2024, DeepSeek-V3 Technical Report",
    .gguf_rope = RopeStyle::interleaved,
    .common_gguf = false,
    .read_gguf = read_deepseek_gguf,
    .read_huggingface = read_v3,
    .harmless_fields = kUnreadWithoutExperts,
    .names = kNames,
    .gguf_name = "deepseek2",
    .takes = scores_by_sigmoids,
    .write_gguf = write_deepseek_gguf,
    .write_huggingface = write_deepseek,
};

}  // namespace millrace
