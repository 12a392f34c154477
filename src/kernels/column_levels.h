// Encodes columns to levels. A column is the values of one channel in all tokens that share a scale. 32 columns are
// processed at a time, so that a token's channels are vectors. KV codecs whose scales are shared along tokens encode a
// full block with these functions (kv/codecs). One source of loops is compiled for several instruction sets, with
// bit-identical results. Results depend only on the arguments.
#pragma once

#include <cstdint>

#include "kernels/row_levels.h"

namespace millrace {

inline constexpr int64_t kColumns = 32;  // whole units of levels (AffineRows) for every number of bits
inline constexpr int64_t kMaxColumnTokens = 128;

struct ColumnLevels {
  int64_t tokens = 0;           // 1 to kMaxColumnTokens
  const float* rows = nullptr;  // [tokens] rows, finite; `stride` floats from row to row
  int64_t stride = 0;
  int bits = 4;            // bits of a level
  uint8_t* out = nullptr;  // units of levels of each token; `out_stride` bytes from token to token
  int64_t out_stride = 0;
  alignas(64) float low[kColumns];  // smallest value of each column
  float high[kColumns];
  // The grid of each column: the place of a value is (value - zero) * inverse. inverse is 1 / step, or 0 if step is 0.
  float zero[kColumns], step[kColumns], inverse[kColumns];
  uint16_t zero_bits[kColumns], step_bits[kColumns];  // zero and step as f16
  int32_t place[kColumns];
};

struct ColumnLevelKernels {
  void (*ranges)(ColumnLevels& c);  // sets `low` and `high`
  // Variant that first copies the rows to `to`, with kColumns floats from row to row, and sets c.rows to the copy.
  void (*copied_ranges)(ColumnLevels& c, float* to);
  // Sets `place` to the token whose value is farthest from the median of its column; the first token in a tie. `low`
  // and `high` must be set.
  void (*farthest)(ColumnLevels& c);
  // Rounds 32 numbers of magnitude at most 65504 to the nearest f16. Writes the f16 bits and the rounded values.
  void (*round_halves)(const float* x, uint16_t* halves, float* rounded);
  // Compute the grids from `low` and `high`, rounded to f16. grids_from_low(): a grid begins at low * clip and has
  // `top` steps to high * clip. grids_from_middle(): it begins in the middle, with one step to each end. Return true if
  // all ends are at most 65504.
  bool (*grids_from_low)(ColumnLevels& c, float clip, float top);
  bool (*grids_from_middle)(ColumnLevels& c);
  // Stores levels: the integer from 0 to 2^bits - 1 that is nearest to a value's place on the grid.
  void (*whole_levels)(ColumnLevels& c);
  // Stores levels: the index of the nearest of 2^bits ascending codes on the grid. `middles`: the 2^bits - 1 midpoints
  // between codes.
  void (*code_levels)(ColumnLevels& c, const float* middles);
  // Variant for codes that are symmetric about zero. `middles`: the 2^(bits - 1) - 1 midpoints of the upper half.
  void (*symmetric_levels)(ColumnLevels& c, const float* middles);
  RowLevelKernels row;
};

const ColumnLevelKernels& portable_column_levels();
const ColumnLevelKernels& avx2_column_levels();    // x86-64 only
const ColumnLevelKernels& avx512_column_levels();  // x86-64 only
const ColumnLevelKernels& column_level_kernels();  // the fastest that select_isa() allows

}  // namespace millrace
