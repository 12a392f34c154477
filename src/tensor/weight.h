// Weight: a matrix with all its parts; the only thing linear() takes. y[rows] = W[rows, cols] x[cols].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/aligned_buffer.h"
#include "tensor/tensor.h"

namespace millrace {

struct MatmulKernel;  // kernels/kernel_table.h

// Scales stored beside the matrix (FP8 checkpoints): value = stored * scale[row / block_rows][col / block_cols].
struct BlockScales {
  std::vector<float> values;  // [ceil(rows / block_rows), ceil(cols / block_cols)]; empty: none
  int64_t block_rows = 0;
  int64_t block_cols = 0;
};

struct Weight {
  std::string name;
  const Format* format = nullptr;
  int64_t rows = 0;               // outputs
  int64_t cols = 0;               // inputs
  const uint8_t* data = nullptr;  // stored rows in a mapped file, row after row
  BlockScales scales;
  // Where the file holds the transpose, `data` is this matrix's first column of stored numbers in `column_format` (one
  // value a block), each column_stride bytes from the last; `format` is then f32, which packing decodes them to.
  const Format* column_format = nullptr;
  int64_t column_stride = 0;

  // Filled by pack_weight() (kernels/linear.h), or a view of what a model keeps for all its weights: the layout that
  // `kernel` reads.
  const MatmulKernel* kernel = nullptr;
  AlignedBuffer packed;

  bool present() const { return rows > 0; }
};

}  // namespace millrace
