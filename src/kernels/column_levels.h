// Levels of columns: the values of one channel in all tokens that share a scale, for 32 channels at a time, so that
// rows of channels are vectors. KV codecs that scale along tokens encode a full block with these functions (kv/codecs).
// One source of loops is compiled for several instruction sets, with the same results, bit for bit. Pure functions of
// their arguments.
#pragma once

#include <cstdint>

#include "kernels/row_levels.h"

namespace millrace {

inline constexpr int64_t kColumns = 32;  // whole units of levels (AffineRows) of any number of bits
inline constexpr int64_t kMaxColumnTokens = 128;

struct ColumnLevels {
  int64_t tokens = 0;           // 1 to kMaxColumnTokens
  const float* rows = nullptr;  // [tokens] rows at a distance of `stride`, finite
  int64_t stride = 0;
  int bits = 4;            // bits of a level
  uint8_t* out = nullptr;  // units of the levels of each token, at a distance of `out_stride`
  int64_t out_stride = 0;
  alignas(64) float low[kColumns];  // smallest value of each column
  float high[kColumns];
  // The grid of each column, on which a value is at (value - zero) * inverse: the inverse of step, or 0 where that is
  // 0.
  float zero[kColumns], step[kColumns], inverse[kColumns];
  uint16_t zero_bits[kColumns], step_bits[kColumns];  // zero and step as f16
  int32_t place[kColumns];
};

struct ColumnLevelKernels {
  void (*ranges)(ColumnLevels& c);  // sets low and high
  // Variant that first copies the rows to `to`, at a distance of kColumns; c.rows is the copy from then on.
  void (*copied_ranges)(ColumnLevels& c, float* to);
  // Sets place to the token of the value that is farthest from the median of its column, the first of equal ones. Needs
  // low and high.
  void (*farthest)(ColumnLevels& c);
  // Rounds 32 numbers of at most 65504 to the nearest f16: the f16 bits, and the rounded values.
  void (*round_halves)(const float* x, uint16_t* halves, float* rounded);
  // Computes the grids of the ranges as the nearest f16. A grid begins at the low end and has `top` steps to the high
  // one, both times `clip`; or it begins in the middle, with one step to each end. Returns true if all ends are at most
  // 65504.
  bool (*grids_from_low)(ColumnLevels& c, float clip, float top);
  bool (*grids_from_middle)(ColumnLevels& c);
  // Stores levels: the nearest whole number from 0 to 2^bits - 1 on the grid.
  void (*whole_levels)(ColumnLevels& c);
  // The nearest of 2^bits ascending codes on the grid; `middles` are between them, 2^bits - 1.
  void (*code_levels)(ColumnLevels& c, const float* middles);
  // Variant for codes that are symmetric about zero; `middles`: of the upper half, 2^(bits - 1) - 1 numbers.
  void (*symmetric_levels)(ColumnLevels& c, const float* middles);
  RowLevelKernels row;
};

const ColumnLevelKernels& portable_column_levels();
const ColumnLevelKernels& avx2_column_levels();    // x86-64 only
const ColumnLevelKernels& avx512_column_levels();  // x86-64 only
const ColumnLevelKernels& column_level_kernels();  // the fastest that select_isa() allows

}  // namespace millrace
