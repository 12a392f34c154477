// Products of weights that change their inputs or outputs (tensor/weight_parts.h): y = o(W r(t(x))) + bias.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear.h"
#include "kernels/part_kernels.h"
#include "models/forward_context.h"
#include "tensor/weight_parts.h"

namespace millrace {

inline bool changes_product(const Weight& weight) {
  return weight.parts && !(weight.parts->input.empty() && weight.parts->output.empty());
}

// Returns how many products multiply_changed() computes together, from the first on, whose weight changes its input or
// output. They are the parts of a fused matrix whose outputs are transformed as one, and the following products with
// the same inputs, changed in the same way; at most kMaxPairs.
size_t changed_together(std::span<const LinearPart> parts, std::span<const LinearSource> sources);
// All of as many weights; x [tokens, cols].
void multiply_changed(ForwardContext& context, std::span<const LinearPart> parts, const float* x);

// t(x) of one row, to `out`; `scratch` [cols] is overwritten. All three are different.
void change_input(const PartKernels& kernels, const InputChange& change, const float* x, int64_t cols, float* scratch,
                  float* out);
// By the reference kernels, whose bits all others have.
void change_input(const InputChange& change, const float* x, int64_t cols, float* scratch, float* out);
// Blocks of `n` values times a Hadamard matrix, in place; 0: no blocks.
void transform_rows(int64_t block, float* values, int64_t n);

}  // namespace millrace
