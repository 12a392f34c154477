#include "learn/lab_spec.h"

#include <fmt/format.h>

#include <cmath>

#include "models/layer_mixers.h"

namespace millrace {
namespace {

constexpr int64_t kMaxTrainedVocab = 1 << 17, kMaxTrainedContext = 1 << 20, kMaxTrainedWidth = 4096,
                  kMaxTrainedLayers = 256, kMaxTrainedHidden = 1 << 14, kMaxTrainedExperts = 256;

std::string untrainable_size(const char* name, int64_t value, int64_t max) {
  if (value > 0 && value <= max && value % 32 == 0) return {};
  return fmt::format("a {} of {}; it must be a multiple of 32 up to {}", name, value, max);
}

std::string untrainable_sizes(const ArchSpec& s) {
  for (const std::string& problem : {untrainable_size("vocabulary", s.vocab, kMaxTrainedVocab),
                                     untrainable_size("width", s.width, kMaxTrainedWidth)})
    if (!problem.empty()) return problem;
  if (s.context < 1 || s.context > kMaxTrainedContext) return fmt::format("a context of {} tokens", s.context);
  if (s.layer_count() < 1 || s.layer_count() > kMaxTrainedLayers) return fmt::format("{} layers", s.layer_count());
  if (!(s.norm_eps > 0)) return fmt::format("a norm's epsilon of {}", s.norm_eps);
  return {};
}

// Parts of a model that are the same for all its layers.
std::string untrainable_kind(const ArchSpec& s) {
  if (s.norm != NormKind::rms || s.norm_offset != 0) return "norms other than RMSNorm";
  if (!s.pre_norm || s.post_norm) return "norms after attention and MLP";
  if (s.qk_norm != QkNorm::none) return "norms of queries and keys";
  if (!s.gated) return "MLPs without a gate";
  if (s.activation != HiddenActivation::silu && s.activation != HiddenActivation::relu)
    return "activations other than silu and relu";
  if (s.value_norm || s.keys_as_values) return "norms of values, or keys as values";
  if (s.layer_input > 0 || s.layer_scales || s.streams > 1 || s.laurel_rank > 0)
    return "inputs or factors of layers, or several residual streams";
  if (s.learned_positions) return "learned positions";
  if (s.embedding_scale != 1 || s.residual_scale != 1 || s.logit_scale != 1 || s.gate_scale != 1 || s.mlp_scale != 1)
    return "factors of embedding, MLP, residual sum or logits";
  if (s.attention_sinks) return "attention sinks";
  if (s.attention_softcap != 0 || s.final_softcap != 0) return "soft caps";
  if (s.attention_scale != 0 && s.attention_scale != 1.0f / std::sqrt(static_cast<float>(s.head_dim)))
    return fmt::format("a factor of {} of the attention's scores", s.attention_scale);
  return {};
}

std::string untrainable_rope(const ArchSpec& s) {
  if (s.ropes.size() != 1) return fmt::format("{} rotation schemes", s.ropes.size());
  const RopeSpec& rope = s.ropes[0];
  if (rope.scaling != RopeSpec::Scaling::none || rope.dynamic || !rope.long_factors.empty() ||
      !rope.short_factors.empty())
    return "scaled rotations";
  if (!(rope.theta > 1)) return fmt::format("a rope base of {}", rope.theta);
  if (rope.rotated != s.head_dim) return fmt::format("rope rotates {} of a head's {} dims", rope.rotated, s.head_dim);
  return {};
}

std::string untrainable_mixture(const MoeSpec& moe) {
  if (moe.experts < kExpertsUsed || moe.experts > kMaxTrainedExperts) return fmt::format("{} experts", moe.experts);
  if (moe.used != kExpertsUsed)
    return fmt::format("a token uses {} experts, and it trains models that use {}", moe.used, kExpertsUsed);
  if (moe.shared_hidden != 0 || moe.shared_gate || moe.beside_mlp) return "shared experts";
  if (!moe.normalize || moe.sigmoid || moe.scale != 1 || moe.groups != 1 || !moe.selection_bias.empty())
    return "a router other than the softmax over the chosen experts";
  return {};
}

std::string untrainable_layer(const ArchSpec& s, const LayerSpec& layer) {
  if (!is_plain_attention(layer)) return "mixers other than attention";
  if (layer.attention_gate) return "gates of attention";
  if (layer.kv_from >= 0 || layer.gate_cut != 0) return "keys of another layer, or cut gates";
  if (layer.window != 0) return fmt::format("a window of {} tokens", layer.window);
  if (layer.rope != 0) return "a layer without positions";
  if (!layer.mlp) return "a layer without an MLP";
  if (layer.head_dim < 1 || layer.head_dim % 32 != 0 || layer.heads < 1 || layer.value_dim != layer.head_dim ||
      layer.heads > s.width || layer.heads * layer.head_dim != s.width)
    return fmt::format("{} heads of {} dims in a width of {}; it trains heads of a multiple of 32 dims that fill it",
                       layer.heads, layer.head_dim, s.width);
  if (layer.kv_heads < 1 || layer.heads % layer.kv_heads != 0)
    return fmt::format("{} heads that share {} key/value heads", layer.heads, layer.kv_heads);
  if (layer.moe)
    if (const std::string problem = untrainable_mixture(layer.experts); !problem.empty()) return problem;
  return untrainable_size("width of the MLP", mlp_width(layer), kMaxTrainedHidden);
}

}  // namespace

void complete_llama(ArchSpec& spec, int64_t layers, double rope_base) {
  spec.arch = "llama";
  spec.head_dim = spec.heads > 0 ? spec.width / spec.heads : 0;
  spec.ropes = {RopeSpec{.rotated = spec.head_dim, .theta = rope_base}};
  spec.moe.used = kExpertsUsed;
  LayerSpec layer;
  layer.moe = spec.moe.experts > 0;
  set_own_sizes(spec, layer);
  spec.layers.assign(layers > 0 && layers <= kMaxTrainedLayers ? static_cast<size_t>(layers) : 0, layer);
}

Result<void> trainable(const ArchSpec& spec) {
  std::string problem = untrainable_sizes(spec);
  if (problem.empty()) problem = untrainable_kind(spec);
  if (problem.empty()) problem = untrainable_rope(spec);
  if (problem.empty()) problem = untrainable_layer(spec, spec.layers[0]);
  for (const LayerSpec& layer : spec.layers)
    if (problem.empty() && layer != spec.layers[0]) problem = "layers that differ from each other";
  if (problem.empty()) return {};
  return Error::unsupported(problem);
}

int64_t trained_parameters(const ArchSpec& spec) {
  int64_t sum = spec.vocab * spec.width + spec.width;
  for (const LayerSpec& layer : spec.layers) {
    const int64_t router = layer.moe ? layer.experts.experts : 0;
    sum += spec.width * (2 + qkv_rows(layer) + layer.heads * layer.head_dim + router);
    sum += 3 * mlp_count(layer) * mlp_width(layer) * spec.width;
  }
  return sum;
}

bool same_model(const ArchSpec& a, const ArchSpec& b) {
  return a.vocab == b.vocab && a.context == b.context && a.width == b.width && a.activation == b.activation &&
         a.norm_eps == b.norm_eps && a.ropes[0].theta == b.ropes[0].theta && a.layers == b.layers;
}

}  // namespace millrace
