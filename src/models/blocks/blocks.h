// The parts of a layer. Each works on the whole batch and reads ArchSpec for what differs between architectures.
#pragma once

#include "flow/batch.h"
#include "models/forward_context.h"
#include "models/model.h"

namespace millrace {

// y[t] = norm(x[t]) for `tokens` rows of `width`; an absent norm copies (y may be x).
void norm_rows(const ArchSpec& spec, const NormWeights& weights, ForwardContext& context, const float* x, int64_t tokens, float* y);

// Multiplies encoded rows and adds the bias, if any.
void linear_bias(ForwardContext& context, const Weight& weight, const std::vector<float>& bias, const ActivationRows& x, float* y,
                 int64_t y_stride);

// Fills context.rope with cos and sin of every token of the batch.
void fill_rope_tables(const ArchSpec& spec, const std::vector<std::vector<double>>& frequencies,
                      const std::vector<float>& scales, const Batch& batch, ForwardContext& context);

// context.normed -> context.block_out
void attention_block(const ArchSpec& spec, const LayerSpec& layer, int64_t index, const LayerWeights& weights, const Batch& batch,
                     ForwardContext& context);
void mlp_block(const ArchSpec& spec, const MlpWeights& weights, int64_t hidden, int64_t tokens, ForwardContext& context);
void moe_block(const ArchSpec& spec, const LayerWeights& weights, int64_t tokens, ForwardContext& context);

// act(gate) * up, or act(up) in place, over n values: `up` holds the result when there is no gate, `gate` otherwise.
void activate(const ArchSpec& spec, const KernelTable& kernels, float* gate, float* up, int64_t n);

}  // namespace millrace
