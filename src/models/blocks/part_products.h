// The products of a weight's parts (tensor/weight_parts.h) but for changes of its input and output. Rows are processed
// some at a time; they are independent, so this changes no bit.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear.h"
#include "tensor/weight_parts.h"

namespace millrace {

class ForwardContext;

// y = B (A x) + bias of each of these factored matrices, all for as many rows: the products with A are one job, and so
// are those with B.
void multiply_pairs(ForwardContext& context, std::span<const LinearPart> parts);
// Returns true for a factored matrix with a sparse A, which `parts->sparse` holds.
inline bool has_sparse_factor(const Weight& weight) {
  return is_factored(weight) && !weight.parts->low_rank_a.present();
}
// y = B (A x) + bias of one of these; x [tokens, cols].
void multiply_dense_sparse(ForwardContext& context, const LinearPart& part, const float* x);
// y += B (A x) + S x + C x[columns] + b, of a factored matrix without B (A x).
void add_parts(ForwardContext& context, const LinearPart& part, const float* x);

inline constexpr int64_t kTurnedFrom = 3;  // tokens that sparse matrices multiply in columns (kernels/part_kernels.h)
// Rows [begin, end) of y += S x, of one token.
void add_sparse_rows(const SparseMatrix& sparse, const float* x, int64_t begin, int64_t end, float* y);

}  // namespace millrace
