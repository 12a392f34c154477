// The products of a weight's parts (tensor/weight_parts.h). Rows are processed some at a time, so that the working
// memory does not depend on the batch; rows are independent, so this changes no bit.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "tensor/weight_parts.h"

namespace millrace {

class ForwardContext;

// Of the buffer ForwardContext::parts.
int64_t part_scratch_bytes(const PartSizes& sizes);

inline bool changes_input(const Weight& weight) { return weight.parts && !weight.parts->input.empty(); }

// y = W t(x) + bias, of a weight that changes its input; x [tokens, cols].
void multiply_changed(ForwardContext& context, const LinearPart& part, const float* x);
// y += B (A x) + S x.
void add_parts(ForwardContext& context, const LinearPart& part, const float* x);

// t(x) of one row, to `out`; `scratch` [cols] is overwritten. All three are different.
void change_input(const InputChange& change, const float* x, int64_t cols, float* scratch, float* out);

}  // namespace millrace
