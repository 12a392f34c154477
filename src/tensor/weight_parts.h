// WeightParts: data that is stored in addition to a matrix W and takes part in its products:
//
//   y = o(W r(t(x))) + B (A x) + S x + C x[columns] + b     t(x)[i] = (H^T (scale * (x - shift)))[order[i]]
//
// t changes the input: an element-wise shift and scale, a Hadamard transform H of blocks, and a new order of elements.
// r rounds t(x) to fewer bits (kernels/input_rounding.h). o changes the product: o(y) = scale * (H y). H transforms
// each block. H may also mix the blocks; it is then the Kronecker product of a second Hadamard matrix
// (tensor/hadamard.h) and the matrix of one block. B A is a low-rank pair, S a sparse matrix, C a few dense columns. b
// is a bias; if the input is shifted, b includes the product of W and the shift. Each part may be absent. If there is a
// low-rank pair, W may be absent too: the matrix is then factored.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/weight.h"

namespace millrace {

// A run of columns of t(x), and the format to which they are rounded: integers, or floats with a sign, an exponent and
// a mantissa. Each group of columns has one scale per token. The scale maps `clip` times the group's largest magnitude
// to the largest number of the format.
struct InputSegment {
  int32_t columns = 0;        // number of columns, after those of the previous segment
  int32_t exponent_bits = 0;  // 0: integers
  int32_t mantissa_bits = 0;  // for integers, bits of the magnitude, such as 7 for int8
  int32_t group = 0;          // columns of a group; the last group of a segment may be smaller
  float clip = 1;

  bool operator==(const InputSegment&) const = default;
};

struct InputChange {
  std::vector<float> shift;    // [cols]
  std::vector<float> scale;    // [cols]
  int64_t hadamard = 0;        // block size, a power of two; 0: none
  int64_t outer = 1;           // size of the Hadamard matrix that mixes blocks, only if `order` is empty; 1: no mixing
  std::vector<int32_t> order;  // [cols]: column i multiplies input order[i]; an input may occur any number of times
  std::vector<InputSegment> rounding;

  bool empty() const { return shift.empty() && scale.empty() && hadamard == 0 && order.empty() && rounding.empty(); }
};

struct OutputChange {
  int64_t hadamard = 0;      // block size, a power of two; 0: none
  int64_t outer = 1;         // size of the Hadamard matrix that mixes blocks; 1: no mixing
  int64_t fused = 0;         // rows of the fused matrix if its product is transformed as a whole; 0: it is not
  int64_t begin = 0;         // index of this matrix's first row in the fused matrix
  std::vector<float> scale;  // [rows]

  bool empty() const { return scale.empty() && hadamard == 0; }
};

// A matrix in CSR form: each row is a list of (column, value) in ascending order of columns.
struct SparseMatrix {
  std::vector<int64_t> row_begin;  // [rows + 1]; empty: no matrix
  std::vector<int32_t> columns;
  std::vector<float> values;

  bool empty() const { return row_begin.empty(); }
};

struct WeightParts {
  InputChange input;
  OutputChange output;
  Weight low_rank_a;             // [rank, cols]
  Weight low_rank_b;             // [rows, rank]
  SparseMatrix sparse;           // S; or A of a factored matrix without low_rank_a
  std::vector<int32_t> columns;  // indices in x of the inputs that multiply column_weights; ascending
  Weight column_weights;         // [rows, columns]
  std::vector<float> bias;       // [rows]
  bool factored = false;         // the pair replaces W; W has no data and no kernel, and `input` and `output` are empty

  // Returns the bytes of heap memory, without low_rank_a, low_rank_b and column_weights, which are packed with the
  // model's other matrices.
  int64_t bytes() const {
    const size_t floats = input.shift.size() + input.scale.size() + input.order.size() + output.scale.size() +
                          2 * sparse.values.size() + columns.size() + bias.size();
    return static_cast<int64_t>(floats * 4 + input.rounding.size() * sizeof(InputSegment) +
                                sparse.row_begin.size() * 8);
  }

  // Calls `call` for each present matrix that is packed: the low-rank pair and column_weights.
  template <typename Call>
  void each_matrix(const Call& call) {
    for (Weight* weight : {&low_rank_a, &low_rank_b, &column_weights})
      if (weight->present()) call(*weight);
  }
};

// Returns true if the matrix itself is absent. The weight's `format` is then the format of A, so that callers round
// their inputs for A.
inline bool is_factored(const Weight& weight) { return weight.parts && weight.parts->factored; }

// Largest sizes of a model's weights with parts; they determine the working memory of their products.
struct PartSizes {
  int64_t inputs = 0;         // columns or transformed rows of matrices whose input or output is changed
  int64_t rank = 0;           // rank of a low-rank pair, or number of separate columns (C)
  int64_t sparse_cols = 0;    // columns of sparse matrices
  int64_t cols = 0;           // columns of matrices with a low-rank pair
  int64_t rows = 0;           // rows of matrices with a low-rank pair or with separate columns (C)
  int64_t factored_rank = 0;  // rank of factored matrices
  bool any = false;
};

}  // namespace millrace
