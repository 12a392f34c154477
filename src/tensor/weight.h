// Weight: a matrix with all its parts; the only input type of linear(). y[rows] = W[rows, cols] x[cols].
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

// Scales stored alongside the matrix (FP8 checkpoints; NVFP4, one for the whole): value = stored * scale[row /
// block_rows][col / block_cols].
struct BlockScales {
  std::vector<float> values;  // [ceil(rows / block_rows), ceil(cols / block_cols)]; empty: none
  int64_t block_rows = 0;
  int64_t block_cols = 0;
};

// State of a matrix that is multiplied while it is still being packed: products read its stored rows until then.
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
  // If the file stores the transpose, `data` is this matrix's first column, a row of the file in `column_format`, and
  // columns have a distance of column_stride bytes; `format` is then one of single values (f32, f16, bf16), in which
  // they are packed.
  const Format* column_format = nullptr;
  int64_t column_stride = 0;
  // If `data` are rows of indices, the weights that they represent; `format` is then codebook_format()
  // (kernels/codebook_products.h). Null: there is none.
  std::shared_ptr<Codebook> codebook;
  // Parts stored in addition to the matrix that belong to its products; null: none. Applied by project()
  // (models/blocks/blocks.h); linear() multiplies the matrix alone.
  std::shared_ptr<WeightParts> parts;

  // Filled by pack_weight() (kernels/linear.h), or a view of the model's buffer for all weights: the layout that
  // `kernel` reads.
  const MatmulKernel* kernel = nullptr;
  AlignedBuffer packed;
  PackingState* packing = nullptr;  // null: `packed` is complete, and `data` is no longer read

  bool present() const { return rows > 0; }
};

}  // namespace millrace
