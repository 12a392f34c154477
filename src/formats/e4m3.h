// E4M3: an 8-bit float with 4 exponent and 3 mantissa bits, bias 7, no infinities (Micikevicius et al., 2022, "FP8
// Formats for Deep Learning"). 0x7f and 0xff are NaN; the largest value is 448. Pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "formats/block.h"

namespace millrace {

inline constexpr float kLargestE4m3 = 448.0f;

inline bool e4m3_is_nan(uint8_t byte) { return (byte & 0x7fu) == 0x7f; }

inline float e4m3_to_f32(uint8_t byte) {
  const uint32_t sign = (byte & 0x80u) << 24, magnitude = byte & 0x7fu;
  if (e4m3_is_nan(byte)) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude < 8) {  // zero or subnormal: mantissa * 2^-9
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

// Returns the nearest E4M3, ties to even. x must be finite and within +-kLargestE4m3.
inline uint8_t f32_to_e4m3(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const float magnitude = std::fabs(x);
  if (magnitude < 0x1p-6f) return static_cast<uint8_t>(sign | round_to_int(magnitude * 0x1p9f));
  bits &= 0x7fffffffu;
  const uint32_t rounded = bits + 0x7ffffu + (bits >> 20 & 1);
  return static_cast<uint8_t>(sign | (rounded - (120u << 23)) >> 20);
}

}  // namespace millrace
