// Two operations of the training step with custom gradients; libtorch's versions would take a third of the step.
// Thread-safety: stateless.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace millrace {

// True if the processor multiplies bfloat16 in hardware; otherwise bf16_linear() would be slower than linear.
bool has_fast_bf16();

// x [rows, in] times weight [out, in] transposed -> [rows, out], all F32; factors are rounded to bfloat16, sums are
// F32, and the result is rounded to bfloat16 once. Weights and the optimizer stay F32.
torch::Tensor bf16_linear(const torch::Tensor& x, const torch::Tensor& weight);

// Zeroes a share of the values and scales up the rest. The choice depends only on `seed` and the position (a hash, no
// generator), so the backward pass needs no stored mask.
torch::Tensor seeded_dropout(const torch::Tensor& x, double share, uint64_t seed);

}  // namespace millrace
