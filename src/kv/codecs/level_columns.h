// Columns of a tile: 32 channels of keys at a time, in all tokens that share a scale (kernels/column_levels.h). Batches
// of columns keep the encoding of a full block a small part of a step.
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
  // For each of the first `count` columns, stores the value that is farthest from the column's median, with its place,
  // and replaces it in the column by another value of the column. Copies the rows first if they belong to the caller.
  void take_outliers(int64_t count, uint8_t* to);
  // Sets the grid of one column; both numbers are f16 bits.
  void set_grid(int64_t column, uint16_t step_half, uint16_t zero_half);
  // The nearest of 2^bits ascending codes.
  void fit_codes(const float* codes);
};

}  // namespace millrace
