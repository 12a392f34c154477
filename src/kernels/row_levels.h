// Levels of a row: some channels of one token that share a scale. KV codecs encode each token with these functions
// (kv/codecs), in the vectors of column_levels.h, with the same results on every instruction set. Pure functions of
// their arguments.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int64_t kRowUnit = 32;  // values and levels of a row have room for a multiple

struct RowLevels {
  const float* values = nullptr;  // [count]; the room behind them repeats the first. NaNs leave the results undefined,
                                  // but `place` within the row.
  int64_t count = 0;
  int bits = 4;               // bits of a level
  uint8_t* levels = nullptr;  // a byte each; bytes written behind the last one mean nothing
  float low = 0, high = 0;
  float zero = 0, inverse = 0;  // the grid, on which a value is at (value - zero) * inverse
  uint16_t zero_bits = 0, step_bits = 0;
  int64_t place = 0;
};

// As ColumnLevelKernels.
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
