// Weight: a matrix with all its parts, y[rows] = W[rows, cols] x[cols]. The only type of matrix that linear() accepts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor/aligned_buffer.h"
#include "tensor/tensor.h"

namespace millrace {

struct MatmulKernel;  // kernels/kernel_table.h
struct WeightParts;   // tensor/weight_parts.h
struct Codebook;      // tensor/codebook.h

// Scales stored alongside the matrix: value = stored * scale[row / block_rows][col / block_cols]. FP8 checkpoints have
// them; NVFP4 has one scale for the whole matrix.
struct BlockScales {
  std::vector<float> values;  // [ceil(rows / block_rows), ceil(cols / block_cols)]; empty: none
  int64_t block_rows = 0;
  int64_t block_cols = 0;
};

// State of a matrix that is multiplied while it is being packed. Products read its stored rows until it is packed.
struct PackingState {
  std::atomic<bool> complete{false};  // `packed` can be read
  std::atomic<bool> damaged{false};   // a product has read stored rows with NaN or infinity; its result means nothing
};

struct Weight {
  std::string name;
  const Format* format = nullptr;
  int64_t rows = 0;               // outputs
  int64_t cols = 0;               // inputs
  const uint8_t* data = nullptr;  // stored rows in a mapped file, row after row
  BlockScales scales;
  // If the file stores the transpose, a row of the file is a column of this matrix. `data` then points to the first
  // column, columns are stored in `column_format` at a distance of `column_stride` bytes, and the matrix is packed in
  // `format`, which is f32, f16 or bf16. Null: the file stores the matrix itself.
  const Format* column_format = nullptr;
  int64_t column_stride = 0;
  // If `data` contains rows of indices: the tables that they refer to. `format` is then codebook_format()
  // (kernels/codebook_products.h). Null: `data` contains no indices.
  std::shared_ptr<Codebook> codebook;
  // Parts stored in addition to the matrix; null: none. project() (models/blocks/blocks.h) includes them in the
  // product; linear() multiplies the matrix alone.
  std::shared_ptr<WeightParts> parts;

  // `packed`: the matrix in the layout that `kernel` reads. pack_weight() (kernels/linear.h) fills it, or it is a view
  // of one buffer for all weights of the model.
  const MatmulKernel* kernel = nullptr;
  AlignedBuffer packed;
  PackingState* packing = nullptr;  // null: `packed` is complete, and `data` is no longer read

  bool present() const { return rows > 0; }
};

}  // namespace millrace
