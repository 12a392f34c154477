// WeightParts: what is stored beside a matrix W and takes part in its products:
//
//   y = W t(x) + B (A x) + S x        t(x)[i] = (H (scale * x))[order[i]]
//
// t changes the input: an element-wise scale, a Hadamard transform of blocks, a permutation. B A is a pair of low rank,
// S a sparse matrix. Each part may be absent.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/weight.h"

namespace millrace {

struct InputChange {
  std::vector<float> scale;    // [cols]
  int64_t hadamard = 0;        // block size, a power of two; 0: none
  std::vector<int32_t> order;  // [cols], a permutation: column i multiplies input order[i]

  bool empty() const { return scale.empty() && hadamard == 0 && order.empty(); }
};

// Rows of (column, value), in ascending order of columns.
struct SparseMatrix {
  std::vector<int64_t> row_begin;  // [rows + 1]; empty: no matrix
  std::vector<int32_t> columns;
  std::vector<float> values;

  bool empty() const { return row_begin.empty(); }
};

struct WeightParts {
  InputChange input;
  Weight low_rank_a;  // [rank, cols]
  Weight low_rank_b;  // [rows, rank]
  SparseMatrix sparse;

  // Heap memory; the low-rank pair is packed with the model's other matrices.
  int64_t bytes() const {
    return static_cast<int64_t>((input.scale.size() + input.order.size() + 2 * sparse.values.size()) * 4 +
                                sparse.row_begin.size() * 8);
  }
};

// Largest sizes of a model's weights with parts; they determine the working memory of their products.
struct PartSizes {
  int64_t inputs = 0;  // columns of matrices whose input is changed
  int64_t rank = 0;
  int64_t cols = 0;  // of matrices with a low-rank pair
  int64_t rows = 0;  // of matrices with a low-rank pair
  bool any = false;
};

}  // namespace millrace
