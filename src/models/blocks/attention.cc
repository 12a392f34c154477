#include "attention/full.h"
#include "models/blocks/blocks.h"

namespace millrace {
namespace {

struct RopeRows {
  const float* rows = nullptr;  // [tokens][cos, sin][half]; null: no rotation
  int64_t half = 0;
};

RopeRows rope_of(const ArchSpec& spec, const LayerSpec& layer, const ForwardContext& context) {
  if (layer.rope < 0) return {};
  const float* rows = context.rope.as<float>();
  for (int r = 0; r < layer.rope; ++r) rows += context.limits().tokens * spec.ropes[r].rotated;
  return {rows, spec.ropes[layer.rope].rotated / 2};
}

// QK-norm, rotation and scaling of one token's heads.
void prepare_heads(const ArchSpec& spec, const KernelTable& kernels, const std::vector<float>& norm, const RopeRows& rope,
                   int64_t token, float* heads, int64_t count) {
  if (spec.qk_norm == QkNorm::full && !norm.empty())
    kernels.rms_norm(heads, norm.data(), spec.norm_offset, spec.norm_eps, count * spec.head_dim, heads);
  for (int64_t h = 0; h < count; ++h) {
    float* head = heads + h * spec.head_dim;
    if (spec.qk_norm == QkNorm::head && !norm.empty())
      kernels.rms_norm(head, norm.data(), spec.norm_offset, spec.norm_eps, spec.head_dim, head);
    if (rope.rows && rope.half > 0) {
      const float* cos = rope.rows + token * 2 * rope.half;
      kernels.rope(head, cos, cos + rope.half, 2 * rope.half, spec.rope_style == RopeStyle::half);
    }
  }
}

void store_token(KvPool& kv, const RowCodec& codec, int64_t layer, const Batch& batch, const BatchSpan& span, int64_t token,
                 const float* k, const float* v, int64_t kv_heads, int64_t head_dim) {
  const int64_t slot = span.first_slot + token - span.begin;
  const int64_t block_tokens = kv.layout().block_tokens;
  const BlockId block = batch.block_tables[span.table + slot / block_tokens];
  const int64_t offset = slot % block_tokens * kv.row_bytes(layer);
  for (int64_t h = 0; h < kv_heads; ++h) {
    codec.encode(k + h * head_dim, kv.keys(layer, block, h) + offset, head_dim);
    codec.encode(v + h * head_dim, kv.values(layer, block, h) + offset, head_dim);
  }
}

}  // namespace

void attention_block(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const LayerWeights& weights, const Batch& batch,
                     ForwardContext& context) {
  const int64_t tokens = batch.size();
  const int64_t q_width = spec.heads * spec.head_dim;
  const int64_t kv_width = spec.kv_heads * spec.head_dim;
  float* q = context.q.as<float>();
  float* k = context.k.as<float>();
  float* v = context.v.as<float>();

  ActivationRows x{};
  const Weight* last = nullptr;  // Q, K and V share the rounded rows where their formats agree
  auto project = [&](const Weight& weight, const std::vector<float>& bias, float* y) {
    if (!last || last->format->activation != weight.format->activation) {
      x = encode_activations(context.kernels(), context.pool(), weight.format->activation, context.normed.as<float>(), spec.width,
                             tokens, spec.width, context.encoded.data());
    }
    last = &weight;
    linear_bias(context, weight, bias, x, y, weight.rows);
  };
  project(weights.q, weights.q_bias, q);
  project(weights.k, weights.k_bias, k);
  project(weights.v, weights.v_bias, v);

  const RopeRows rope = rope_of(spec, layer, context);
  const RowCodec& codec = *context.kernels().find_codec(context.kv().layout().format);
  for (const BatchSpan& span : batch.spans) {
    context.pool().parallel_for(span.count, [&](int64_t i, int) {
      const int64_t t = span.begin + i;
      prepare_heads(spec, context.kernels(), weights.q_norm, rope, t, q + t * q_width, spec.heads);
      prepare_heads(spec, context.kernels(), weights.k_norm, rope, t, k + t * kv_width, spec.kv_heads);
      context.kernels().scale(q + t * q_width, spec.attention_scale, q_width);
      store_token(context.kv(), codec, index, batch, span, t, k + t * kv_width, v + t * kv_width, spec.kv_heads, spec.head_dim);
    });
  }

  const AttentionLayer attention{index, spec.heads, spec.kv_heads, spec.head_dim, layer.window, spec.attention_softcap};
  attend(batch, attention, context.kernels(), context.pool(), context.kv(), q, context.attended.as<float>(), context.limits().context,
         context.partials.as<float>(), context.block_pointers.data());

  ActivationRows out = encode_activations(context.kernels(), context.pool(), weights.output.format->activation,
                                          context.attended.as<float>(), q_width, tokens, q_width, context.encoded.data());
  linear_bias(context, weights.output, weights.output_bias, out, context.block_out.as<float>(), spec.width);
}

}  // namespace millrace
