// Columns of a tile: the values of one channel in all tokens that share a scale, of 32 channels at a time. Rows of
// channels are vectors, so that a column costs no more than a group of a token, and the block that a stream has filled
// is encoded in little of a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kv/codecs/level_codec.h"

namespace millrace {

inline constexpr int64_t kColumns = 32;  // whole units of any number of bits

struct LevelColumns {
  int64_t tokens = 0;
  alignas(16) float values[kMaxKeyTokens][kColumns];
  alignas(16) float low[kColumns], high[kColumns];  // set by find_ranges()
  uint16_t scale[kColumns], zero[kColumns];         // f16, which levels are fitted to
  uint8_t levels[kMaxKeyTokens][kColumns];

  // `count` channels of rows that are `stride` apart; the other columns are zeros.
  void load(const float* rows, int64_t stride, int64_t count) {
    for (int64_t t = 0; t < tokens; ++t, rows += stride) {
      if (count == kColumns) {
        std::memcpy(values[t], rows, sizeof(values[t]));
        continue;
      }
      std::fill_n(values[t], kColumns, 0.0f);
      std::copy_n(rows, count, values[t]);
    }
  }
  void clear_levels(int64_t from) {
    for (int64_t t = 0; t < tokens; ++t) std::fill(levels[t] + from, levels[t] + kColumns, uint8_t{0});
  }
  // One column, [tokens].
  void read(int64_t column, float* to) const {
    for (int64_t t = 0; t < tokens; ++t) to[t] = values[t][column];
  }
  void write(int64_t column, const float* from) {
    for (int64_t t = 0; t < tokens; ++t) values[t][column] = from[t];
  }
  void find_ranges();
  // Stores of each of the first `count` columns the value that is farthest from its median, with its place, and puts
  // another value of the column in its place.
  void take_outliers(int64_t count, uint8_t* to);
  // The nearest of the whole numbers from 0 to `top`.
  void fit_whole_levels(float top);
  // The nearest of 2^bits ascending codes.
  void fit_codes(int bits, const float* codes);
};

}  // namespace millrace
