// Mixture of experts (Shazeer et al., 2017; Jiang et al., 2024, "Mixtral of Experts"): every token's rows are gathered
// by expert, so that each expert's matrices are read once a batch, and summed per token in the order of its own
// ranking, so that batch mates change nothing.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/activation.h"
#include "models/blocks/blocks.h"

namespace millrace {
namespace {

// Top `used` experts of one token by probability, ties to the lower index; weights in rank order.
void choose_experts(const MoeSpec& moe, const KernelTable& kernels, float* logits, int32_t* chosen, float* weight) {
  kernels.softmax(logits, moe.experts);
  float total = 0.0f;
  for (int64_t rank = 0; rank < moe.used; ++rank) {
    int64_t best = -1;
    for (int64_t e = 0; e < moe.experts; ++e)
      if (logits[e] >= 0.0f && (best < 0 || logits[e] > logits[best])) best = e;
    if (best < 0) best = 0;  // a router row of NaN: defined, if useless
    chosen[rank] = static_cast<int32_t>(best);
    weight[rank] = logits[best];
    total += logits[best];
    logits[best] = -1.0f;  // taken
  }
  if (!moe.normalize) return;
  for (int64_t rank = 0; rank < moe.used; ++rank) weight[rank] /= total;
}

// Counting sort of (token, rank) pairs by expert into context.expert_rows.
void group_by_expert(const MoeSpec& moe, int64_t pairs, ForwardContext& context) {
  auto& begin = context.expert_begin;
  std::ranges::fill(begin, 0);
  for (int64_t i = 0; i < pairs; ++i) ++begin[context.chosen[i] + 1];
  for (int64_t e = 0; e < moe.experts; ++e) begin[e + 1] += begin[e];
  for (int64_t i = 0; i < pairs; ++i) context.expert_rows[begin[context.chosen[i]]++] = static_cast<int32_t>(i);
  for (int64_t e = moe.experts; e > 0; --e) begin[e] = begin[e - 1];
  begin[0] = 0;
}

// One expert on its gathered rows; rows `first`.. of gate, up and encoded_hidden are its own scratch.
void run_expert(const ArchSpec& spec, const MlpWeights& expert, const ActivationRows& x, int64_t first, ForwardContext& context) {
  const int64_t hidden = spec.moe.hidden;
  float* gate = context.gate.as<float>() + first * hidden;
  float* up = context.up.as<float>() + first * hidden;
  linear(context.pool(), expert.gate, x, gate, hidden);
  linear(context.pool(), expert.up, x, up, hidden);
  context.pool().parallel_for(x.tokens, [&](int64_t t, int) {
    activate(spec, context.kernels(), gate + t * hidden, up + t * hidden, hidden);
  });
  const Activation kind = expert.down.format->activation;
  ActivationRows inner = encode_activations(context.kernels(), context.pool(), kind, gate, hidden, x.tokens, hidden,
                                            context.encoded_hidden.data() + first * activation_row_bytes(kind, hidden));
  linear(context.pool(), expert.down, inner, context.expert_out.as<float>() + first * spec.width, spec.width);
}

}  // namespace

void moe_block(const ArchSpec& spec, const LayerWeights& weights, int64_t tokens, ForwardContext& context) {
  const MoeSpec& moe = spec.moe;
  const KernelTable& kernels = context.kernels();
  const float* normed = context.normed.as<float>();
  float* logits = context.router.as<float>();
  ActivationRows routed = encode_activations(kernels, context.pool(), weights.router.format->activation, normed, spec.width, tokens,
                                             spec.width, context.encoded.data());
  linear(context.pool(), weights.router, routed, logits, moe.experts);
  context.pool().parallel_for(tokens, [&](int64_t t, int) {
    choose_experts(moe, kernels, logits + t * moe.experts, &context.chosen[t * moe.used], &context.chosen_weight[t * moe.used]);
  });
  const int64_t pairs = tokens * moe.used;
  group_by_expert(moe, pairs, context);

  const Activation kind = weights.experts[0].gate.format->activation;
  ActivationRows x = encode_activations(kernels, context.pool(), kind, normed, spec.width, tokens, spec.width, context.encoded.data());
  context.pool().parallel_for(pairs, [&](int64_t i, int) {
    std::memcpy(context.expert_in.data() + i * x.stride, x.data + context.expert_rows[i] / moe.used * x.stride, static_cast<size_t>(x.stride));
  });
  for (int64_t e = 0; e < moe.experts; ++e) {
    const int64_t begin = context.expert_begin[e];
    const int64_t count = context.expert_begin[e + 1] - begin;
    if (count == 0) continue;
    ActivationRows mine = x;
    mine.data = context.expert_in.data() + begin * x.stride;
    mine.tokens = count;
    run_expert(spec, weights.experts[static_cast<size_t>(e)], mine, begin, context);
  }

  float* out = context.block_out.as<float>();
  if (weights.shared.down.present()) {
    mlp_block(spec, weights.shared, moe.shared_hidden, tokens, context);
    if (weights.shared_gate.present()) {
      ActivationRows gated = encode_activations(kernels, context.pool(), weights.shared_gate.format->activation, normed, spec.width,
                                                tokens, spec.width, context.encoded.data());
      linear(context.pool(), weights.shared_gate, gated, logits, 1);
      context.pool().parallel_for(tokens, [&](int64_t t, int) {
        kernels.scale(out + t * spec.width, 1.0f / (1.0f + std::exp(-logits[t])), spec.width);
      });
    }
  } else {
    std::fill_n(out, tokens * spec.width, 0.0f);
  }
  // Where (token, rank) went, then the sum in rank order.
  auto& place = context.chosen;
  for (int64_t i = 0; i < pairs; ++i) place[context.expert_rows[i]] = static_cast<int32_t>(i);
  context.pool().parallel_for(tokens, [&](int64_t t, int) {
    for (int64_t rank = 0; rank < moe.used; ++rank) {
      const int64_t pair = t * moe.used + rank;
      kernels.add_scaled(context.expert_out.as<float>() + place[pair] * spec.width, context.chosen_weight[pair], out + t * spec.width, spec.width);
    }
  });
}

}  // namespace millrace
