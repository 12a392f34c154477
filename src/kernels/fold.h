// Float matmuls sum columns in folds of 128 columns, in ascending order. Formats with separate scales (FP8 checkpoints)
// multiply each fold's sum by the scale of its block.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"
#include "tensor/weight.h"

namespace millrace {

inline constexpr int64_t kFoldColumns = 128;

constexpr int64_t fold_count(int64_t cols) { return (cols + kFoldColumns - 1) / kFoldColumns; }

// Returns the scale of fold `fold` of row `row`; 1 without scales. Scale blocks are whole folds, which pack_weight()
// checks.
inline float fold_scale(const BlockScales* scales, int64_t cols, int64_t row, int64_t fold) {
  if (scales == nullptr || scales->values.empty()) return 1.0f;
  int64_t blocks_a_row = (cols + scales->block_cols - 1) / scales->block_cols;
  int64_t index = row / scales->block_rows * blocks_a_row + fold * kFoldColumns / scales->block_cols;
  return scales->values[static_cast<size_t>(index)];
}

}  // namespace millrace
