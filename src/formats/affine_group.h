// Levels of 2 or 3 bits in groups of 64 or 128 values, each with a scale and a minimum: value = d * q + m. Rows must be
// multiples of 64 or 128 values, while Q2_K and Q3_K need multiples of 256. The layout on disk is frozen:
//
//   byte 0    2    4                          4 + n / 4
//        | d  | m  | low 2 bits, 4 a byte     | bit 2 of 3, 8 a byte |      d, m: f16
//
//   value i: the low 2 bits are bits 2 (i % 4) and up of low byte i / 4; bit 2 is bit i % 8 of high byte i / 8
//
// Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "formats/block.h"
#include "formats/format.h"
#include "formats/scale_fit.h"

namespace millrace {

inline constexpr int kGgufQ2G64 = 0x4d520004;  // an id that only millrace uses, like kGgufE8p
inline constexpr int kGgufQ2G128 = 0x4d520005;
inline constexpr int kGgufQ3G64 = 0x4d520006;
inline constexpr int kGgufQ3G128 = 0x4d520007;

template <int kBits, int kValues>
struct AffineGroup {
  static_assert(kBits == 2 || kBits == 3);
  static constexpr int kLevels = 1 << kBits;
  static constexpr int kLowAt = 4;
  static constexpr int kHighAt = kLowAt + kValues / 4;
  static constexpr int kBytes = kHighAt + (kBits == 3 ? kValues / 8 : 0);

  static int level(const uint8_t* block, int i) {
    const int low = block[kLowAt + i / 4] >> (i % 4 * 2) & 3;
    if constexpr (kBits == 2) return low;
    return low | (block[kHighAt + i / 8] >> (i % 8) & 1) << 2;
  }

  static void set_level(uint8_t* block, int i, int level) {
    put_bits(block[kLowAt + i / 4], i % 4 * 2, 2, level);
    if constexpr (kBits == 3) put_bits(block[kHighAt + i / 8], i % 8, 1, level >> 2);
  }

  static void decode(const uint8_t* source, float* destination, int64_t n) {
    decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
      const float d = load_f16(block), m = load_f16(block + 2);
      for (int i = 0; i < kValues; ++i) out[i] = d * static_cast<float>(level(block, i)) + m;
    });
  }

  // With few levels, covering the whole range is not optimal: the fit clips the ends if that reduces the error.
  static void encode(const float* source, uint8_t* destination, int64_t n) {
    encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
      const AffineScale fit = fit_affine(x, kValues, kLevels - 1);
      const F16Scale d = make_f16_scale(fit.scale), m = make_f16_scale(-fit.minimum);
      store_u16(block, d.bits);
      store_u16(block + 2, m.bits);
      const float inverse = d.stored != 0 ? 1.0f / d.stored : 0.0f;
      for (int i = 0; i < kValues; ++i) set_level(block, i, round_clamped((x[i] - m.stored) * inverse, 0, kLevels - 1));
    });
  }

  static int64_t find_non_finite(const uint8_t* source, int64_t n) {
    return find_block<kValues, kBytes>(
        source, n, [](const uint8_t* block) { return !f16_is_finite(block) || !f16_is_finite(block + 2); });
  }
};

}  // namespace millrace
