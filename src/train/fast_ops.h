// Two operations of the training step with custom gradients. With libtorch's versions, they would take a third of the
// step. Stateless.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace millrace {

// Returns true if the processor multiplies bfloat16 in hardware. Otherwise, bf16_linear() is slower than libtorch's
// linear.
bool has_fast_bf16();

// Returns x [rows, in] times the transposed weight [out, in]: [rows, out]. All tensors are F32. Factors are rounded to
// bfloat16, sums are F32, and the result is rounded to bfloat16 once.
torch::Tensor bf16_linear(const torch::Tensor& x, const torch::Tensor& weight);

// Sets a share of the values to zero and scales up the others. The choice is a hash of `seed` and the position, so the
// backward pass needs no stored mask.
torch::Tensor seeded_dropout(const torch::Tensor& x, double share, uint64_t seed);

}  // namespace millrace
