// The products of a weight's parts (tensor/weight_parts.h). Rows are processed some at a time, so that the working
// memory does not depend on the batch; rows are independent, so this changes no bit.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear.h"
#include "tensor/weight_parts.h"

namespace millrace {

class ForwardContext;

// Of the buffer ForwardContext::parts.
int64_t part_scratch_bytes(const PartSizes& sizes);

// Its input, its output or both.
inline constexpr size_t kMostPairs = 4;  // products at once
inline bool changes_product(const Weight& weight) {
  return weight.parts && !(weight.parts->input.empty() && weight.parts->output.empty());
}

// How many of the products from the first on, whose weight is such a one, multiply_changed() takes together: the parts
// of a fused matrix whose outputs are transformed as one, or 1.
size_t changed_together(std::span<const LinearPart> parts);
// y = o(W r(t(x))) + bias, of as many such weights; x [tokens, cols].
void multiply_changed(ForwardContext& context, std::span<const LinearPart> parts, const float* x);
// y = B (A x) + bias of each of these factored matrices, all for as many rows: the products with A are one job, and so
// are those with B.
void multiply_pairs(ForwardContext& context, std::span<const LinearPart> parts);
// Whether a factored matrix has a sparse A, which `parts->sparse` holds.
inline bool has_sparse_factor(const Weight& weight) {
  return is_factored(weight) && !weight.parts->low_rank_a.present();
}
// y = B (A x) + bias of one of these; x [tokens, cols].
void multiply_dense_sparse(ForwardContext& context, const LinearPart& part, const float* x);
// y += B (A x) + S x + C x[columns] + b, of a factored matrix without B (A x).
void add_parts(ForwardContext& context, const LinearPart& part, const float* x);

// Rows [begin, end) of y += S x, of one token.
void add_sparse_rows(const SparseMatrix& sparse, const float* x, int64_t begin, int64_t end, float* y);

// Blocks of `n` values times a Hadamard matrix, in place; 0: no blocks.
void transform_rows(int64_t block, float* values, int64_t n);
// t(x) of one row, to `out`; `scratch` [cols] is overwritten. All three are different.
void change_input(const InputChange& change, const float* x, int64_t cols, float* scratch, float* out);

}  // namespace millrace
