// Blocks of 32 values, each a 4-bit index q into a table of codes, with one f16 scale d and the layout of Q4_0: value =
// d * unit * codes[q]. Pure functions.
#pragma once

#include "formats/block.h"

namespace millrace {

struct CodeBlock {
  static constexpr int kValues = 32;
  static constexpr int kBytes = 18;

  const int8_t (&codes)[16];
  float unit;

  void decode(const uint8_t* source, float* destination, int64_t n) const {
    decode_blocks<kValues, kBytes>(source, destination, n, [this](const uint8_t* block, float* out) {
      const float scale = load_f16(block) * unit;
      for (int j = 0; j < kValues / 2; ++j) {
        out[j] = scale * static_cast<float>(codes[block[2 + j] & 0xf]);
        out[j + kValues / 2] = scale * static_cast<float>(codes[block[2 + j] >> 4]);
      }
    });
  }

  // The scale maps the largest magnitude to the largest code. If two codes are equally near, the first one is used.
  void encode(const float* source, uint8_t* destination, int64_t n) const {
    encode_blocks<kValues, kBytes>(source, destination, n, [this](const float* x, uint8_t* block) {
      const F16Scale d = make_f16_scale(std::fabs(largest_signed(x, kValues)));
      store_u16(block, d.bits);
      const float inverse = d.inverse / unit;
      for (int j = 0; j < kValues; ++j) put_nibble(block + 2, j, nearest(x[j] * inverse));
    });
  }

  int nearest(float x) const {
    int best = 0;
    for (int i = 1; i < 16; ++i)
      if (std::fabs(x - static_cast<float>(codes[i])) < std::fabs(x - static_cast<float>(codes[best]))) best = i;
    return best;
  }

  static int64_t find_non_finite(const uint8_t* source, int64_t n) {
    return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
  }

  static void set_level(uint8_t* block, int value, int level) { put_nibble(block + 2, value, level); }
};

}  // namespace millrace
