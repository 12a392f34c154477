#include "models/arch/unread_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/ordered_json.h"
#include "models/arch/common.h"

namespace millrace {
namespace {

using FieldJson = nlohmann::ordered_json;

constexpr double kNoNeutral = std::numeric_limits<double>::quiet_NaN();
constexpr int kMaxDepth = 4;

// Parts of names that change numbers, with the value that changes nothing. The first match counts.
struct NumericName {
  std::string_view part;
  double neutral;
};
constexpr NumericName kNumericNames[] = {
    {"scale", 1},
    {"scaling", 1},
    {"multiplier", 1},
    {"_ratio", 1},
    {"_pct", 1},
    {"fraction", 1},
    {"softcap", 0},
    {"soft_cap", 0},
    {"factor", 1},
    {"bias", 0},
    {"norm", 0},
    {"window", 0},
    {"sliding", 0},
    {"_swa", 0},
    {"chunk", 0},
    {"clip", 0},
    {"clamp", 0},
    {"_limit", 0},
    {"sink", 0},
    {"softmax", 0},
    {"alibi", 0},
    {"bidirectional", 0},
    {"gate", 0},
    {"logit", 0},
    {"attn_temp", 0},
    {"temperature_", 0},
    {"parallel_attn", 0},
    {"parallel_residual", 0},
    {"parallel_block", 0},
    {"residual", 0},
    {"kv_shared", 0},
    {"shared_kv", 0},
    {"sharing", 0},
    {"per_layer", 0},
    {"altup", 0},
    {"laurel", 0},
    {"sparsity", 0},
    {"k_eq_v", 0},
    {"hyper_conn", 0},
    {"index_topk", 0},
    {"indexer", 0},
    {"mup", 0},
    {"layer_types", 0},
    {"rope", kNoNeutral},
    {"rotary", kNoNeutral},
    {"theta", kNoNeutral},
    {"yarn", kNoNeutral},
    {"scalar", kNoNeutral},
    {"dim_model_base", kNoNeutral},
    {"position_embedding_type", kNoNeutral},
};

// Names that match the parts above and change nothing in any family. The file's tensors tell which biases there are.
// The others belong to training, to rounding, to sampling or to programs, or the loader has applied them.
constexpr std::string_view kHarmless[] = {
    "attention_bias",
    "mlp_bias",
    "qkv_bias",
    "lm_head_bias",
    "output_router_logits",
    "renormalize_logits",
    "guidance_scale",
    "initializer_factor",
    "label_smoothing_factor",
    "chunk_size_feed_forward",
    "softmax_in_fp32",
    "attention_softmax_in_fp32",
    "residual_in_fp32",
    "quantization_config",
    "compression_config",
    "quantization",
    "quip_params",
    "task_specific_params",
    "id2label",
    "label2id",
    "auto_map",
    "vision_config",
    "audio_config",
    "encoder_config",
    "generation_config",
    "rope.scaling.finetuned",
    "rope.dimension_sections",
};

// Fields whose neutral value their names do not tell. `flag`: of true and false, the one that changes nothing.
struct NeutralValue {
  std::string_view name;
  double (*neutral)(const ArchSpec& spec);
  bool flag = false;
};
double neutral_one(const ArchSpec&) { return 1; }
double neutral_attention_scale(const ArchSpec& spec) {
  if (spec.attention_scale != 0.0f) return static_cast<double>(spec.attention_scale);
  return 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(1, spec.head_dim)));
}
double neutral_head_dim(const ArchSpec& spec) { return static_cast<double>(spec.head_dim); }
double neutral_rotated(const ArchSpec& spec) {
  return spec.ropes.empty() ? 0 : static_cast<double>(spec.ropes[0].rotated);
}
double neutral_theta(const ArchSpec& spec) { return spec.ropes.empty() ? 0 : spec.ropes[0].theta; }
double neutral_norm_eps(const ArchSpec& spec) { return static_cast<double>(spec.norm_eps); }
double neutral_window(const ArchSpec& spec) {
  int64_t window = 0;
  for (const LayerSpec& layer : spec.layers) window = std::max(window, layer.window);
  return static_cast<double>(window);
}

constexpr NeutralValue kNeutralValues[] = {
    {"rope_ratio", neutral_one},
    {"partial_rotary_factor", neutral_one},
    {"no_rope_layers", neutral_one, true},
    {"scale_attn_weights", neutral_one, true},
    {"use_rope", neutral_one, true},
    {"use_rotary", neutral_one, true},
    {"use_rms_norm", neutral_one, true},
    {"rms_norm", neutral_one, true},
    {"is_causal", neutral_one, true},
    {"attention.causal", neutral_one, true},
    {"expert_gating_func", neutral_one},  // the softmax
    {"attention_multiplier", neutral_attention_scale},
    {"attention_scale", neutral_attention_scale},
    {"attn_scale", neutral_attention_scale},
    {"softmax_scale", neutral_attention_scale},
    {"query_pre_attn_scalar", neutral_head_dim},
    {"attention.key_length_swa", neutral_head_dim},
    {"attention.value_length_swa", neutral_head_dim},
    {"rotary_dim", neutral_rotated},
    {"rope.dimension_count_swa", neutral_rotated},
    {"rope.freq_base_swa", neutral_theta},
    {"norm_eps", neutral_norm_eps},
    {"norm_epsilon", neutral_norm_eps},
    {"layer_norm_eps", neutral_norm_eps},
    {"layer_norm_epsilon", neutral_norm_eps},
    {"layernorm_epsilon", neutral_norm_eps},
    {"rms_norm_eps", neutral_norm_eps},
    {"sliding_window_size", neutral_window},
};

struct NeutralPair {
  double number;
  bool flag = false;
};

// What changes nothing in a field of this name. nullopt: the name tells of nothing that changes numbers.
std::optional<NeutralPair> neutral_of(std::string_view name, const ArchSpec& spec) {
  const auto special = std::ranges::find(kNeutralValues, name, &NeutralValue::name);
  if (special != std::end(kNeutralValues)) return NeutralPair{special->neutral(spec), special->flag};
  for (const NumericName& numeric : kNumericNames)
    if (name.find(numeric.part) != std::string_view::npos) return NeutralPair{numeric.neutral};
  return std::nullopt;
}

bool is_neutral_text(const std::string& text) {
  constexpr std::string_view kNeutral[] = {"",     "none",   "default", "full_attention", "full",
                                           "rope", "rotary", "rms",     "rmsnorm",        "rms_norm"};
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return std::ranges::find(kNeutral, lower) != std::end(kNeutral);
}

bool is_neutral(const FieldJson& value, std::string_view name, const NeutralPair& neutral, const ArchSpec& spec) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return value.get<bool>() == neutral.flag;
  if (value.is_string()) return is_neutral_text(value.get<std::string>());
  if (value.is_object()) return value.empty();
  if (value.is_array())
    return std::ranges::all_of(value, [&](const FieldJson& item) { return is_neutral(item, name, neutral, spec); });
  const double number = value.get<double>();
  // A window that covers the context limits nothing.
  const bool window = name.find("window") != std::string_view::npos && name.find("pattern") == std::string_view::npos;
  if (window && number >= static_cast<double>(spec.context)) return true;
  return std::abs(number - neutral.number) <= 1e-6 * std::abs(neutral.number);
}

struct FieldRules {
  const ArchSpec& spec;
  std::span<const std::string_view> harmless;

  // Returns the path of the first field that changes numbers in `value`, a field called `name`; "" if there is none.
  std::string find_change(const FieldJson& value, const std::string& name, int depth) const {
    if (std::ranges::find(kHarmless, name) != std::end(kHarmless)) return {};
    if (std::ranges::find(harmless, name) != harmless.end()) return {};
    if (const auto neutral = neutral_of(name, spec)) return is_neutral(value, name, *neutral, spec) ? "" : name;
    if (!value.is_object() || depth >= kMaxDepth) return {};
    for (const auto& [inner, item] : value.items())
      if (const std::string path = find_change(item, inner, depth + 1); !path.empty())
        return fmt::format("{}: {}", name, path);
    return {};
  }
};

}  // namespace

std::vector<UnreadField> unread_fields(ConfigReader& config, const ArchSpec& spec,
                                       std::span<const std::string_view> harmless) {
  if (!config.was_read("sliding_window") && config.has("use_sliding_window") &&
      !config.flag_or("use_sliding_window", true))
    skip_huggingface_windows(config);
  const FieldRules rules{spec, harmless};
  std::vector<UnreadField> out;
  for (const std::string& key : config.keys()) {
    if (config.was_read(key)) continue;
    const FieldJson* value = config.value(key);
    if (!value) continue;
    const std::string path = rules.find_change(*value, key, 0);
    if (path.empty()) continue;
    out.push_back({path, value->dump(-1, ' ', false, FieldJson::error_handler_t::replace).substr(0, 60)});
  }
  return out;
}

void refuse_unread_fields(ConfigReader& config, const ArchSpec& spec, std::string_view family,
                          std::span<const std::string_view> harmless) {
  const std::vector<UnreadField> unread = unread_fields(config, spec, harmless);
  if (unread.empty()) return;
  config.fail(Error::unsupported(fmt::format(
      "{}: {} is {}: this field may change what the model computes, and is not supported for the architecture '{}'",
      config.source(), unread[0].path, unread[0].value, family)));
}

}  // namespace millrace
