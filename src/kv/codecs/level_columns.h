// Columns of a tile: 32 channels of keys at a time, in all tokens that share a scale (kernels/column_levels.h), so that
// the block that a stream has filled is encoded in little of a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/column_levels.h"
#include "kv/codecs/level_codec.h"

namespace millrace {

static_assert(kMaxKeyTokens <= kMaxColumnTokens);

struct LevelColumns : ColumnLevels {
  alignas(64) float values[kMaxKeyTokens][kColumns];  // that `rows` points to, unless the caller has them

  // `count` channels of rows that are `apart`; the other columns are zeros. `copied`: values may be changed.
  void load(const float* from, int64_t apart, int64_t count, bool copied) {
    const bool whole = count == kColumns;
    rows = whole && !copied ? from : values[0];
    stride = whole && !copied ? apart : kColumns;
    for (int64_t t = 0; t < tokens && rows == values[0]; ++t, from += apart) {
      if (whole) {
        std::memcpy(values[t], from, sizeof(values[t]));
        continue;
      }
      std::fill_n(values[t], kColumns, 0.0f);
      std::copy_n(from, count, values[t]);
    }
  }
  // One column, [tokens].
  void read(int64_t column, float* to) const {
    for (int64_t t = 0; t < tokens; ++t) to[t] = rows[t * stride + column];
  }
  void write(int64_t column, const float* from) {
    for (int64_t t = 0; t < tokens; ++t) values[t][column] = from[t];
  }
  // Stores of each of the first `count` columns the value that is farthest from its median, with its place, and puts
  // another value of the column in its place. Copies the rows if they are the caller's.
  void take_outliers(int64_t count, uint8_t* to);
  // Of one column, as f16.
  void set_grid(int64_t column, uint16_t step_half, uint16_t zero_half);
  // The nearest of 2^bits ascending codes.
  void fit_codes(const float* codes);
};

}  // namespace millrace
