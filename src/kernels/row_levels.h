// Encodes a row to levels. A row is the channels of one token that share a scale. KV codecs encode each token with
// these functions (kv/codecs). They use the vectors of column_levels.h, with the same results on every instruction set.
// Results depend only on the arguments.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int64_t kRowUnit = 32;  // the arrays of values and levels have room for a multiple of this

struct RowLevels {
  // [count]; the additional room repeats the first value. With NaNs, results are undefined, but `place` is in the row.
  const float* values = nullptr;
  int64_t count = 0;
  int bits = 4;               // bits of a level
  uint8_t* levels = nullptr;  // one byte each; bytes written beyond `count` have no meaning
  float low = 0, high = 0;
  float zero = 0, inverse = 0;  // the grid, on which a value is at (value - zero) * inverse
  uint16_t zero_bits = 0, step_bits = 0;
  int64_t place = 0;
};

// See ColumnLevelKernels.
struct RowLevelKernels {
  void (*range)(RowLevels& r);
  void (*farthest)(RowLevels& r);
  bool (*grid_from_low)(RowLevels& r, float clip, float top);
  bool (*grid_from_middle)(RowLevels& r);
  void (*whole_levels)(RowLevels& r);
  void (*code_levels)(RowLevels& r, const float* middles);
  void (*symmetric_levels)(RowLevels& r, const float* middles);
};

}  // namespace millrace
