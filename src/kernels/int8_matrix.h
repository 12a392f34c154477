// Int8Matrix: a matrix of int8 levels with one scale, and its products with rows of int8 levels that have one scale,
// too (W8A8, a scale for a tensor). Sums are exact int32 integers. So a product has the same bits on every instruction
// set, for any number of threads, and for any other rows in the same call.
//
//   weight = scale * level      input = scale * level + residual      y = scales * (sum of level * level)
//
// An input beyond 127 levels is cut to 127, and its residual is listed as an outlier (Xu et al., 2024, "Fast On-device
// LLM Inference with NPUs"). add_columns() adds the products of residuals with columns of floats. Kernels allocate
// nothing. Thread-safe.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/result.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

inline constexpr int64_t kInt8TileRows = 16;
// Sums of more columns than this could exceed int32.
inline constexpr int64_t kMaxInt8Columns = 65536;

// packed: [ceil(rows / 16)][ceil(cols / 4)][16 rows][4 columns], a byte each: level + 128. Padding is 128.
struct Int8Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  float scale = 0;
  AlignedBuffer packed;
};

// Returns the bytes of Int8Matrix::packed.
int64_t int8_matrix_bytes(int64_t rows, int64_t cols);
// Creates a matrix of zeros. Errors: resource, unsupported (too many columns).
Result<Int8Matrix> make_int8_matrix(int64_t rows, int64_t cols, float scale);
// Rounds `values` [matrix.cols] to the nearest levels and stores them as row `row`.
void store_int8_row(int64_t row, const float* values, Int8Matrix& matrix);

// Returns the bytes of one row of input levels: whole groups of 64 columns.
inline int64_t int8_input_bytes(int64_t cols) { return (cols + 63) / 64 * 64; }

struct Int8Outlier {
  int32_t column = 0;
  float residual = 0;  // the input less 127 (or -127) times the scale
};

// One row of inputs, and its levels.
struct Int8Input {
  const float* x = nullptr;  // [cols]
  int64_t cols = 0;
  float scale = 1;
  int8_t* levels = nullptr;         // [int8_input_bytes(cols)]; padding becomes 0
  Int8Outlier* outliers = nullptr;  // room for `cols`, ascending columns; null: residuals are dropped
};

struct Int8InputSum {
  int32_t sum = 0;       // 128 times the sum of the row's levels
  int64_t outliers = 0;  // listed outliers
};

struct Int8Product {
  const Int8Matrix* matrix = nullptr;
  const int8_t* levels = nullptr;  // [tokens][int8_input_bytes(cols)]
  const int32_t* sums = nullptr;   // [tokens], Int8InputSum::sum
  int64_t tokens = 0;
  float scale = 1;            // scale of the product: the matrix's scale times the inputs'
  float* const* y = nullptr;  // [tokens] rows of matrix->rows floats; null: the row's result is not stored
};

// y[begin, end) += the sum of residual * column, in the order of the terms.
struct Int8Term {
  const float* column = nullptr;  // [rows]
  float residual = 0;
};

struct Int8Kernels {
  Int8InputSum (*encode)(const Int8Input& input) = nullptr;
  // Computes tiles [begin, end) of 16 rows of the matrix.
  void (*multiply)(const Int8Product& product, int64_t begin, int64_t end) = nullptr;
  void (*add_columns)(const Int8Term* terms, int64_t count, int64_t begin, int64_t end, float* y) = nullptr;
};

// Returns the best kernels for the features in `isa`.
const Int8Kernels& int8_kernels(Isa isa);

// The kernels of each file, for int8_kernels().
Int8Kernels int8_kernels_ref();
Int8Kernels int8_kernels_avx2();
Int8Kernels int8_kernels_avx512vnni();

}  // namespace millrace
