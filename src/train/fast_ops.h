// Two operations of the training step with gradients of their own, where libtorch's would take a third of the time.
// Thread-safety: stateless.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace millrace {

// True where the processor multiplies bfloat16 in hardware; elsewhere bf16_linear() would be slower than linear.
bool has_fast_bf16();

// x [rows, in] times weight [out, in] transposed -> [rows, out], all F32; factors are rounded to bfloat16, sums are
// F32, and what comes out is rounded to bfloat16 once. Weights and the optimizer stay F32.
torch::Tensor bf16_linear(const torch::Tensor& x, const torch::Tensor& weight);

// Zeroes a share of the values and scales the rest up. Which ones follows from `seed` and the position alone
// (a hash, no generator), so the backward pass needs no stored mask.
torch::Tensor seeded_dropout(const torch::Tensor& x, double share, uint64_t seed);

}  // namespace millrace
