// Attention over the keys and values of all earlier tokens, in the KV pool: every head, groups that share keys, or
// windows. The parts are in models/blocks/attention.cc.
#include <fmt/format.h>

#include "attention/full.h"
#include "models/arch/common.h"
#include "models/blocks/blocks.h"
#include "models/mixers/mixer.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

std::string attention_problem(const ArchSpec& spec, const LayerSpec& layer) {
  if (layer.head_dim < 1)
    return fmt::format("head size {} (width {}, {} heads)", layer.head_dim, spec.width, layer.heads);
  if (layer.kv_heads < 1 || layer.heads % layer.kv_heads != 0)
    return fmt::format("{} query heads cannot share {} KV heads", layer.heads, layer.kv_heads);
  if (layer.heads * layer.head_dim > kMaxWidth) return fmt::format("{} heads of {} dims", layer.heads, layer.head_dim);
  if (layer.value_dim != layer.head_dim)
    return fmt::format("keys of {} and values of {} dims", layer.head_dim, layer.value_dim);
  if (spec.value_norm && spec.qk_norm != QkNorm::head)
    return "a norm of values without norms of queries and keys by head";
  if (layer.attention_gate && layer.mixers.size() > 1) return "gates of attention in a layer with a further mixer";
  for (int i = 0; i < static_cast<int>(spec.ropes.size()); ++i) {
    const int64_t rotated = spec.ropes[static_cast<size_t>(i)].rotated;
    if (rotated < 0 || rotated % 2 != 0 || (i == layer.rope && rotated > layer.head_dim))
      return fmt::format("rope rotates {} of {} dims", rotated, layer.head_dim);
  }
  if (layer.kv_from >= 0 && (layer.attention_gate || layer.mixers.size() > 1))
    return "keys and values of an earlier layer in a layer with a gate of attention or a further mixer";
  return {};
}

KvLayer attention_state(const LayerSpec& layer) {
  if (layer.kv_from >= 0) return {.window = layer.window};
  return {.kv_heads = layer.kv_heads,
          .head_dim = layer.head_dim,
          .window = layer.window,
          .heads_each = layer.heads / std::max<int64_t>(1, layer.kv_heads)};
}

void declare_attention(const LayerSpec& layer, const ForwardLimits& limits, int threads, ForwardSizes& sizes) {
  const int64_t q_width = layer.heads * layer.head_dim;
  sizes.reads(q_width);
  ForwardSizes::grow(sizes.q_width, q_width);
  ForwardSizes::grow(sizes.kv_width, layer.kv_heads * layer.head_dim);
  if (layer.attention_gate) ForwardSizes::grow(sizes.mixer, 4 * limits.tokens * 2 * q_width);
  ForwardSizes::grow(sizes.partials,
                     4 * attention_scratch_floats(threads, limits.context, layer.heads / layer.kv_heads, layer.head_dim,
                                                  layer.kv_heads, 0, limits.switches.attention));
}

Result<void> load_fused(WeightLoader& loader, const std::string& prefix, int64_t width, int64_t q, int64_t kv,
                        LayerWeights& layer) {
  MILLRACE_TRY(layer.q, loader.rows_of(prefix + "attn_qkv.weight", q + 2 * kv, 0, q, width));
  MILLRACE_TRY(layer.k, loader.rows_of(prefix + "attn_qkv.weight", q + 2 * kv, q, kv, width));
  MILLRACE_TRY(layer.v, loader.rows_of(prefix + "attn_qkv.weight", q + 2 * kv, q + kv, kv, width));
  MILLRACE_TRY(auto bias, loader.optional_vector(prefix + "attn_qkv.bias", q + 2 * kv));
  if (bias.empty()) return {};
  layer.q_bias.assign(bias.begin(), bias.begin() + q);
  layer.k_bias.assign(bias.begin() + q, bias.begin() + q + kv);
  layer.v_bias.assign(bias.begin() + q + kv, bias.end());
  return {};
}

Result<void> load_keys_and_values(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec, int64_t rows,
                                  LayerWeights& layer) {
  MILLRACE_TRY(layer.k, loader.matrix(prefix + "attn_k.weight", rows, spec.width));
  MILLRACE_TRY(layer.k_bias, loader.optional_vector(prefix + "attn_k.bias", rows));
  if (spec.keys_as_values && !loader.find(prefix + "attn_v.weight")) return {};
  MILLRACE_TRY(layer.v, loader.matrix(prefix + "attn_v.weight", rows, spec.width));
  MILLRACE_TRY(layer.v_bias, loader.optional_vector(prefix + "attn_v.bias", rows));
  return {};
}

Result<void> load_attention(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec,
                            const LayerSpec& sizes, LayerWeights& layer) {
  const int64_t q = sizes.heads * sizes.head_dim;
  const int64_t queries = sizes.attention_gate ? 2 * q : q;  // rows of the query matrix
  const int64_t kv = sizes.kv_heads * sizes.head_dim;
  if (loader.find(prefix + "attn_qkv.weight")) {
    MILLRACE_TRY_VOID(load_fused(loader, prefix, spec.width, queries, kv, layer));
  } else {
    MILLRACE_TRY(layer.q, loader.matrix(prefix + "attn_q.weight", queries, spec.width));
    MILLRACE_TRY(layer.q_bias, loader.optional_vector(prefix + "attn_q.bias", queries));
    if (sizes.kv_from < 0) MILLRACE_TRY_VOID(load_keys_and_values(loader, prefix, spec, kv, layer));
  }
  MILLRACE_TRY(layer.output, loader.matrix(prefix + "attn_output.weight", spec.width, q));
  MILLRACE_TRY(layer.output_bias, loader.optional_vector(prefix + "attn_output.bias", spec.width));
  if (spec.qk_norm != QkNorm::none) {
    const bool full = spec.qk_norm == QkNorm::full;
    MILLRACE_TRY(layer.q_norm, loader.vector(prefix + "attn_q_norm.weight", full ? q : sizes.head_dim));
    if (sizes.kv_from < 0) {
      MILLRACE_TRY(layer.k_norm, loader.vector(prefix + "attn_k_norm.weight", full ? kv : sizes.head_dim));
    }
  }
  if (spec.value_norm) layer.v_norm.assign(static_cast<size_t>(sizes.head_dim), 1.0f - spec.norm_offset);
  if (spec.attention_sinks) {
    MILLRACE_TRY(layer.sinks, loader.vector(prefix + "attn_sinks.weight", sizes.heads));
  }
  return {};
}

const Weight& first_matrix(const LayerWeights& weights) { return weights.q; }

void begin_attention(const MixerCall& call, const ActivationRows& x) {
  attention_keys(call.spec, call.layer, call.index, call.weights, call.batch, x, call.context);
  complete_keys(call.spec, call.layer, call.index, call.batch, call.context);
}

MixedRows query_rows(const LayerSpec& layer, ForwardContext& context) {
  const int64_t q_width = layer.heads * layer.head_dim;
  if (!layer.attention_gate) return {context.q.as<float>(), q_width};
  return {context.q.as<float>(), q_width, context.mixer.as<float>(), 2 * q_width};
}

void finish_attention(const MixerCall& call) {
  attention_block(call.spec, call.layer, call.index, call.weights, call.batch, call.context);
}

}  // namespace

const Mixer kAttentionMixer = {
    .name = "attention",
    .summary = "Every token reads the keys and values of the tokens before it, all of them or a window",
    .paper = "Vaswani et al., 2017, Attention Is All You Need",
    .test = "tests/properties/bits_test.cc",
    .state_kind = StateKind::keys,
    .problem = attention_problem,
    .state = attention_state,
    .declare = declare_attention,
    .load = load_attention,
    .first = first_matrix,
    .begin = begin_attention,
    .rows = query_rows,
    .finish = finish_attention,
};

}  // namespace millrace
