#include "models/arch/writing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <optional>

#include "base/ordered_json.h"
#include "models/arch/common.h"
#include "models/blocks/rope.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Scaling = RopeSpec::Scaling;

constexpr double kRelative = 1e-5;  // tolerance for numbers that passed through 32-bit floats

bool close(double a, double b) { return std::abs(a - b) <= kRelative * std::max(std::abs(a), std::abs(b)) + 1e-12; }

double default_scale(const ArchSpec& spec) { return 1.0 / std::sqrt(static_cast<double>(spec.head_dim)); }

// The divisor of each frequency under Llama 3's scaling.
std::vector<float> frequency_divisors(const RopeSpec& rope) {
  RopeSpec plain;
  plain.rotated = rope.rotated;
  plain.theta = rope.theta;
  const std::vector<double> before = rope_frequencies(plain, 0);
  const std::vector<double> after = rope_frequencies(rope, 0);
  std::vector<float> out;
  for (size_t i = 0; i < before.size(); ++i) out.push_back(static_cast<float>(before[i] / after[i]));
  return out;
}

void write_gguf_rope(const RopeSpec& rope, Json& meta, std::vector<FactorTensor>& factors) {
  meta["rope.dimension_count"] = rope.rotated;
  meta["rope.freq_base"] = rope.theta;
  const bool stretched = rope.scaling == Scaling::linear || rope.scaling == Scaling::yarn;
  if (stretched) {
    meta["rope.scaling.type"] = rope.scaling == Scaling::linear ? "linear" : "yarn";
    meta["rope.scaling.factor"] = rope.factor;
  }
  if (rope.scaling != Scaling::none && rope.original_context > 0)
    meta["rope.scaling.original_context_length"] = rope.original_context;
  if (rope.scaling == Scaling::yarn) {
    // Relative to the method's own factor, see read_gguf_rope() in common.cc.
    const double own = rope.factor > 1.0 ? 0.1 * std::log(rope.factor) + 1.0 : 1.0;
    if (rope.attention_factor > 0.0) meta["rope.scaling.attn_factor"] = rope.attention_factor / own;
    if (rope.beta_fast != 32.0) meta["rope.scaling.yarn_beta_fast"] = rope.beta_fast;
    if (rope.beta_slow != 1.0) meta["rope.scaling.yarn_beta_slow"] = rope.beta_slow;
  }
  if (rope.scaling == Scaling::longrope) {
    meta["rope.scaling.attn_factor"] = static_cast<double>(rope_scale(rope));
    factors.push_back({"rope_factors_long.weight", rope.long_factors});
    factors.push_back({"rope_factors_short.weight", rope.short_factors});
  } else if (rope.scaling == Scaling::llama3) {
    factors.push_back({"rope_freqs.weight", frequency_divisors(rope)});
  } else if (!rope.long_factors.empty()) {
    factors.push_back({"rope_freqs.weight", rope.long_factors});
  }
}

bool same_frequencies(const RopeSpec& left, const RopeSpec& right, int64_t context) {
  const auto a = rope_frequencies(left, context), b = rope_frequencies(right, context);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), close);
}

// GGUF stores Llama 3's scaling as divisors only. A divisor d of a wavelength w in the blend has 1/d = (1 - s) / factor
// + s with s = (context / w - low) / (high - low), a line in 1/w: with low = 1, two divisors determine the other
// numbers. With fewer, the published numbers are tried.
std::optional<RopeSpec> find_llama3(const RopeSpec& rope) {
  RopeSpec found = rope;
  found.scaling = Scaling::llama3;
  found.long_factors.clear();
  found.factor = *std::max_element(rope.long_factors.begin(), rope.long_factors.end());
  if (!(found.factor > 1.0)) return std::nullopt;
  auto fits = [&] { return same_frequencies(found, rope, 0); };
  for (double high : {4.0, 8.0, 2.0}) {
    found.high_freq_factor = high;
    for (int64_t context = 16; context <= 1 << 20; context *= 2) {
      found.original_context = context;
      if (fits()) return found;
    }
  }
  RopeSpec plain;
  plain.rotated = rope.rotated;
  plain.theta = rope.theta;
  const auto frequencies = rope_frequencies(plain, 0);
  std::vector<std::pair<double, double>> line;  // 1 / wavelength, s
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double s =
        (1.0 / static_cast<double>(rope.long_factors[i]) - 1.0 / found.factor) / (1.0 - 1.0 / found.factor);
    if (s > 1e-4 && s < 1.0 - 1e-4) line.emplace_back(frequencies[i] / (2.0 * std::numbers::pi), s);
  }
  if (line.size() < 2) return std::nullopt;
  const double slope = (line.front().second - line.back().second) / (line.front().first - line.back().first);
  const double low_share = slope * line.front().first - line.front().second;  // low / (high - low)
  if (!(low_share > 0.0)) return std::nullopt;
  found.high_freq_factor = 1.0 + 1.0 / low_share;
  found.original_context = std::llround(slope / low_share);
  return fits() ? std::optional(found) : std::nullopt;
}

void write_huggingface_rope(const RopeSpec& given, Json& config) {
  RopeSpec rope = given;
  if (rope.scaling == Scaling::none && !rope.long_factors.empty()) {
    auto found = find_llama3(rope);
    if (!found) return;  // spec_difference() will report it
    rope = *found;
  }
  if (rope.scaling == Scaling::none) return;
  Json scaling;
  auto put = [&](const char* type) { scaling["rope_type"] = type; };
  if (rope.scaling == Scaling::longrope) {
    put("longrope");
    scaling["type"] = "longrope";
    for (float f : rope.long_factors) scaling["long_factor"].push_back(plain_number(f));
    for (float f : rope.short_factors) scaling["short_factor"].push_back(plain_number(f));
    scaling["attention_factor"] = plain_number(rope_scale(rope));
    config["rope_scaling"] = scaling;
    return;
  }
  put(rope.scaling == Scaling::linear ? "linear" : rope.scaling == Scaling::yarn ? "yarn" : "llama3");
  scaling["factor"] = rope.factor;
  if (rope.scaling != Scaling::linear) scaling["original_max_position_embeddings"] = rope.original_context;
  if (rope.scaling == Scaling::llama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.scaling == Scaling::yarn) {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    if (!rope.truncate) scaling["truncate"] = false;
    if (rope.attention_factor > 0.0) scaling["attention_factor"] = rope.attention_factor;
  }
  config["rope_scaling"] = scaling;
}

std::string layer_difference(const ArchSpec& left, const ArchSpec& right) {
  for (size_t i = 0; i < left.layers.size(); ++i) {
    const LayerSpec &a = left.layers[i], &b = right.layers[i];
    // A window that covers the whole context is equivalent to none.
    auto window = [&](const LayerSpec& layer) { return layer.window >= left.context ? 0 : layer.window; };
    if (window(a) != window(b)) return fmt::format("attention window of layer {} ({}, {})", i, a.window, b.window);
    if (!std::ranges::equal(a.mixers, b.mixers, {}, &LayerMixer::mixer, &LayerMixer::mixer))
      return fmt::format("mixers of layer {}", i);
    if (!std::ranges::equal(a.mixers, b.mixers, close, &LayerMixer::scale, &LayerMixer::scale) ||
        !std::ranges::equal(a.ssm.scales, b.ssm.scales, close))
      return fmt::format("factors of the mixers of layer {}", i);
    if (a.latent != b.latent) return fmt::format("sizes of the latents of layer {}", i);
    if (!close(a.gate_cut, b.gate_cut)) return fmt::format("the cut of the activations of layer {}", i);
    for (const auto size :
         {&SsmSpec::inner, &SsmSpec::state, &SsmSpec::taps, &SsmSpec::heads, &SsmSpec::groups, &SsmSpec::rank})
      if (a.ssm.*size != b.ssm.*size) return fmt::format("sizes of the recurrent heads of layer {}", i);
    if (a.attention_gate != b.attention_gate) return fmt::format("the gate of attention of layer {}", i);
    const bool dense = !a.moe || left.moe.beside_mlp;
    const auto own = [](int64_t layer, int64_t model) { return layer > 0 ? layer : model; };  // 0: the model's
    if (own(a.head_dim, left.head_dim) != own(b.head_dim, right.head_dim))
      return fmt::format("size of the heads of layer {}", i);
    if (own(a.kv_heads, left.kv_heads) != own(b.kv_heads, right.kv_heads))
      return fmt::format("KV heads of layer {}", i);
    if (dense && a.mlp && own(a.hidden, left.hidden) != own(b.hidden, right.hidden))
      return fmt::format("hidden width of layer {}", i);
    if (a.kv_from != b.kv_from) return fmt::format("the layer whose keys layer {} reads", i);
    if (a.moe != b.moe) return fmt::format("whether layer {} has experts", i);
    if ((a.rope < 0) != (b.rope < 0)) return fmt::format("whether layer {} rotates positions", i);
    if (a.rope < 0) continue;
    const RopeSpec& x = left.ropes[static_cast<size_t>(a.rope)];
    const RopeSpec& y = right.ropes[static_cast<size_t>(b.rope)];
    if (x.rotated != y.rotated) return fmt::format("rotated dims ({}, {})", x.rotated, y.rotated);
    const bool early =
        x.scaling == Scaling::longrope && !same_frequencies(x, y, std::min(x.original_context, left.context));
    if (early || !same_frequencies(x, y, left.context)) return "rope scaling";
    if (!close(rope_scale(x), rope_scale(y))) return "rope attention factor";
  }
  return {};
}

}  // namespace

double plain_number(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

int64_t first_window(const ArchSpec& spec) {
  for (const LayerSpec& layer : spec.layers)
    if (layer.window > 0) return layer.window;
  return 0;
}

int64_t window_pattern(const ArchSpec& spec) {
  for (int64_t n = 1; n <= spec.layer_count(); ++n) {
    bool all = true;
    for (int64_t i = 0; i < spec.layer_count() && all; ++i)
      all = ((i + 1) % n == 0) == (spec.layers[static_cast<size_t>(i)].window == 0);
    if (all) return n;
  }
  return 0;
}

void write_layer_types(const ArchSpec& spec, Json& config) {
  auto& types = config["layer_types"] = Json::array();
  for (const LayerSpec& layer : spec.layers) types.push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
}

void write_huggingface_windows(const ArchSpec& spec, Json& config) {
  const int64_t window = first_window(spec);
  if (window == 0) {
    config["sliding_window"] = nullptr;
    return;
  }
  config["sliding_window"] = window;
  const bool all = std::ranges::all_of(spec.layers, [](const LayerSpec& layer) { return layer.window > 0; });
  if (!all) write_layer_types(spec, config);
}

void write_huggingface_moe(const ArchSpec& spec, Json& config) {
  config["num_experts"] = spec.moe.experts;
  config["num_experts_per_tok"] = spec.moe.used;
  config["moe_intermediate_size"] = spec.moe.hidden;
  config["norm_topk_prob"] = spec.moe.normalize;
  if (spec.moe.shared_hidden > 0) config["shared_expert_intermediate_size"] = spec.moe.shared_hidden;
  config["decoder_sparse_step"] = 1;
  auto& dense = config["mlp_only_layers"] = Json::array();
  for (int64_t i = 0; i < spec.layer_count(); ++i)
    if (!spec.layers[static_cast<size_t>(i)].moe) dense.push_back(i);
}

void write_softcap(Json& config, const char* key, float value) {
  config[key] = value > 0.0f ? Json(plain_number(value)) : Json(nullptr);
}

Json write_arch_gguf(const Arch& arch, const ArchSpec& spec, std::vector<FactorTensor>& factors) {
  Json meta;
  meta["block_count"] = spec.layer_count();
  meta["context_length"] = spec.context;
  meta["embedding_length"] = spec.width;
  meta["feed_forward_length"] = spec.hidden;
  meta["attention.head_count"] = spec.heads;
  meta["attention.head_count_kv"] = spec.kv_heads;
  meta["attention.key_length"] = spec.head_dim;
  meta["attention.value_length"] = spec.head_dim;
  meta[spec.norm == NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"] =
      spec.norm_eps;
  meta["vocab_size"] = spec.vocab;
  if (!spec.learned_positions && !spec.ropes.empty()) write_gguf_rope(spec.ropes[0], meta, factors);
  if (const int64_t window = first_window(spec)) meta["attention.sliding_window"] = window;
  if (!close(spec.attention_scale, default_scale(spec))) meta["attention.scale"] = spec.attention_scale;
  if (spec.attention_softcap > 0.0f) meta["attn_logit_softcapping"] = spec.attention_softcap;
  if (spec.final_softcap > 0.0f) meta["final_logit_softcapping"] = spec.final_softcap;
  if (spec.residual_scale != 1.0f) meta["residual_scale"] = spec.residual_scale;
  if (spec.logit_scale != 1.0f) meta["logit_scale"] = spec.logit_scale;
  if (spec.moe.experts > 0) {
    meta["expert_count"] = spec.moe.experts;
    meta["expert_used_count"] = spec.moe.used;
    if (spec.moe.hidden != spec.hidden) meta["expert_feed_forward_length"] = spec.moe.hidden;
    if (spec.moe.shared_hidden > 0) meta["expert_shared_feed_forward_length"] = spec.moe.shared_hidden;
  }
  if (spec.encoder) meta["attention.causal"] = false;
  if (spec.activation != arch.activation) meta["hidden_activation"] = activation_name(spec.activation);
  if (arch.write_gguf) arch.write_gguf(spec, meta);
  return meta;
}

Json write_arch_huggingface(const Arch& arch, const ArchSpec& spec, const WrittenTensors& tensors) {
  Json config;
  config["architectures"] = Json::array({std::string(arch.huggingface.front())});
  config["model_type"] = std::string(arch.huggingface_type);
  config["vocab_size"] = spec.vocab;
  config["hidden_size"] = spec.width;
  config["intermediate_size"] = spec.hidden > 0 ? spec.hidden : spec.moe.hidden;
  config["num_hidden_layers"] = spec.layer_count();
  config["num_attention_heads"] = spec.heads;
  config["num_key_value_heads"] = spec.kv_heads;
  config["head_dim"] = spec.head_dim;
  config["max_position_embeddings"] = spec.context;
  config["rms_norm_eps"] = plain_number(spec.norm_eps);
  config["hidden_act"] = activation_name(spec.activation);
  if (spec.activation == HiddenActivation::gelu_tanh && spec.gated) config["hidden_activation"] = "gelu_pytorch_tanh";
  if (!spec.learned_positions && !spec.ropes.empty()) {
    config["rope_theta"] = spec.ropes[0].theta;
    if (spec.ropes[0].rotated != spec.head_dim)
      config["partial_rotary_factor"] = static_cast<double>(spec.ropes[0].rotated) / static_cast<double>(spec.head_dim);
    write_huggingface_rope(spec.ropes[0], config);
  }
  config["attention_bias"] = tensors.attention_bias;
  if (tensors.mlp_bias) config["mlp_bias"] = true;
  config["tie_word_embeddings"] = !tensors.head;
  ArchSpec stored = spec;
  for (LayerSpec& layer : stored.layers) {
    layer.ssm.conv_bias = tensors.conv_bias;
    layer.ssm.gated_norm = tensors.ssm_norm;
  }
  if (arch.write_huggingface) arch.write_huggingface(stored, config);
  if (tensors.predictions) config["mtp_num_hidden_layers"] = 1;
  return config;
}

const Arch* arch_for_huggingface(const ArchSpec& spec) {
  const Arch* same = nullptr;
  for (const Arch* arch : archs().members()) {
    if (arch->gguf_name == spec.arch && arch->takes && arch->takes(spec)) return arch;
    if (arch->name == spec.arch) same = arch;
  }
  return same;
}

const Arch* arch_for_gguf(const Arch& arch) {
  for (const Arch* other : archs().members())
    if (!arch.gguf_name.empty() && other->name == arch.gguf_name) return other;
  return &arch;
}

std::string spec_difference(const ArchSpec& left, const ArchSpec& right) {
  const std::pair<const char*, std::pair<double, double>> numbers[] = {
      {"vocabulary", {left.vocab, right.vocab}},
      {"context", {left.context, right.context}},
      {"width", {left.width, right.width}},
      {"query heads", {left.heads, right.heads}},
      {"KV heads", {left.kv_heads, right.kv_heads}},
      {"head size", {left.head_dim, right.head_dim}},
      {"gated MLP", {left.gated, right.gated}},
      {"activation", {static_cast<int>(left.activation), static_cast<int>(right.activation)}},
      {"kind of norm", {static_cast<int>(left.norm), static_cast<int>(right.norm)}},
      {"norm epsilon", {left.norm_eps, right.norm_eps}},
      {"norms before blocks", {left.pre_norm, right.pre_norm}},
      {"norms after blocks", {left.post_norm, right.post_norm}},
      {"norms of queries and keys", {static_cast<int>(left.qk_norm), static_cast<int>(right.qk_norm)}},
      {"learned positions", {left.learned_positions, right.learned_positions}},
      {"embedding scale", {left.embedding_scale, right.embedding_scale}},
      {"attention scale", {left.attention_scale, right.attention_scale}},
      {"residual scale", {left.residual_scale, right.residual_scale}},
      {"logit scale", {left.logit_scale, right.logit_scale}},
      {"attention sinks", {left.attention_sinks, right.attention_sinks}},
      {"attention in both directions", {left.encoder, right.encoder}},
      {"norms of sums", {left.sum_norm, right.sum_norm}},
      {"norm of embeddings", {left.embedding_norm, right.embedding_norm}},
      {"biases by distance", {left.alibi, right.alibi}},
      {"limit of the activation", {left.activation_limit, right.activation_limit}},
      {"attention soft-cap", {left.attention_softcap, right.attention_softcap}},
      {"final soft-cap", {left.final_softcap, right.final_softcap}},
      {"experts", {left.moe.experts, right.moe.experts}},
      {"experts used", {left.moe.used, right.moe.used}},
      {"width of the shared expert", {left.moe.shared_hidden, right.moe.shared_hidden}},
      {"factor of gates", {left.gate_scale, right.gate_scale}},
      {"factor of MLPs", {left.mlp_scale, right.mlp_scale}},
      {"residual streams", {left.streams, right.streams}},
      {"the residual stream that layers compute", {left.active_stream, right.active_stream}},
      {"rank of the matrix pair next to attention", {left.laurel_rank, right.laurel_rank}},
      {"dims of the layers' inputs", {left.layer_input, right.layer_input}},
      {"layers", {left.layer_count(), right.layer_count()}}};
  for (const auto& [what, pair] : numbers)
    if (!close(pair.first, pair.second)) return fmt::format("{} ({}, {})", what, pair.first, pair.second);
  if (left.moe.experts > 0) {
    if (left.moe.hidden != right.moe.hidden) return "width of an expert";
    if (left.moe.normalize != right.moe.normalize) return "normalization of expert weights";
    if (left.moe.shared_gate != right.moe.shared_gate) return "gate of the shared expert";
    if (left.moe.sigmoid != right.moe.sigmoid) return "scores of experts";
    if (!close(left.moe.scale, right.moe.scale)) return "factor of expert weights";
    if (left.moe.groups != right.moe.groups || left.moe.groups_used != right.moe.groups_used ||
        (left.moe.groups > 1 && left.moe.group_best != right.moe.group_best))
      return "groups of experts";
  }
  return layer_difference(left, right);
}

}  // namespace millrace
