// Products of matrices with a codebook (tensor/codebook.h). Weights are what the codebook says, in f32, and inputs are
// f32, so every kernel computes the same bits:
//
//   columns are cut into folds of 512; in a fold, lane l of 16 sums columns l, l + 16, ... in ascending order, with one
//   rounding per fma; lanes i and i + 8 are added, then + 4, + 2, + 1; folds are added to 0 in ascending order
//
// Two packed layouts:
//   rows      the stored rows; tables stay in the Codebook
//   table16   panels of 8 rows, for one table of at most 16 weights a row: 8 tables of 16 f16, and then, for every 32
//             columns, 16 bytes of each row; byte j has the index of column j low, that of column j + 16 high
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int64_t kCodebookFold = 512;
inline constexpr int64_t kTable16Rows = 8;
inline constexpr int64_t kTable16Columns = 32;
inline constexpr int64_t kTable16Bytes = 32;      // of a table
inline constexpr int64_t kTable16UnitBytes = 16;  // of a row's kTable16Columns

[[gnu::always_inline]] constexpr int64_t table16_units(int64_t cols) {
  return (cols + kTable16Columns - 1) / kTable16Columns;
}
[[gnu::always_inline]] constexpr int64_t table16_panel_bytes(int64_t cols) {
  return kTable16Rows * (kTable16Bytes + table16_units(cols) * kTable16UnitBytes);
}

}  // namespace millrace
