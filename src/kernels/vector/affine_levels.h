// Levels of AffineRows and LevelTiles as f32, or the codes that stand for them, one vector at a time. Include after a
// simd_*.h. Simd may have look-ups by whole numbers of its own.
#pragma once

#include <cstring>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// Lane i: value Simd::kLanes * part + i of a unit.
template <int kBits>
inline Simd::F unit_levels(const uint8_t* unit, int part) {
  if constexpr (kBits != 3) return Simd::template levels<kBits>(unit, part);
  uint32_t top;
  std::memcpy(&top, unit + 8, 4);
  return Simd::fma(Simd::spread_bits(top, part * Simd::kLanes), Simd::set(4.0f), Simd::template levels<2>(unit, part));
}

template <int kBits, bool kCodes>
inline Simd::F unit_codes(const uint8_t* unit, int part, const float* codes) {
  if constexpr (kCodes && requires { Simd::template look_up_unit<kBits>(codes, unit, part); })
    return Simd::template look_up_unit<kBits>(codes, unit, part);
  const Simd::F level = unit_levels<kBits>(unit, part);
  if constexpr (kCodes) return Simd::template look_up<kBits>(codes, level);
  return level;
}

// Value i of a unit in each of Simd::kLanes rows, whose 32-bit words are transposed: words[c] has word c of each row.
template <int kBits, bool kCodes>
inline Simd::F transposed_codes(const Simd::F* words, int i, const float* codes) {
  constexpr int kLow = kBits == 4 ? 4 : 2;
  if constexpr (kCodes && requires { Simd::template look_up_bits<kBits>(codes, words[0], 0, words[2], i); })
    return Simd::template look_up_bits<kBits>(codes, words[i % 8 / 4], i % 4 * 8 + i / 8 * kLow, words[2], i);
  Simd::F level = Simd::template bits_at<kLow>(words[i % 8 / 4], i % 4 * 8 + i / 8 * kLow);
  if constexpr (kBits == 3) level = Simd::fma(Simd::template bits_at<1>(words[2], i), Simd::set(4.0f), level);
  if constexpr (kCodes) return Simd::template look_up<kBits>(codes, level);
  return level;
}

}  // namespace
}  // namespace millrace
