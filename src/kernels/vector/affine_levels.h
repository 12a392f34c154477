// Levels of AffineRows and LevelTiles as f32, or the codes that stand for them, one vector at a time. Include after a
// simd_*.h.
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

// Whether a vector type looks codes up by levels as whole numbers, not by floats.
template <typename S, int kBits>
constexpr bool kLooksUpBits = requires(const float* codes, const uint8_t* unit, typename S::F words) {
  S::template look_up_unit<kBits>(codes, unit, 0);
  S::template look_up_bits<kBits>(codes, words, 0, words, 0);
};

template <int kBits, bool kCodes, typename S = Simd>
inline typename S::F unit_codes(const uint8_t* unit, int part, const float* codes) {
  if constexpr (kCodes && kLooksUpBits<S, kBits>) {
    return S::template look_up_unit<kBits>(codes, unit, part);
  } else {
    const typename S::F level = unit_levels<kBits>(unit, part);
    if constexpr (kCodes) return S::template look_up<kBits>(codes, level);
    return level;
  }
}

// Value i of a unit in each of Simd::kLanes rows, whose 32-bit words are transposed: words[c] has word c of each row.
template <int kBits, bool kCodes, typename S = Simd>
inline typename S::F transposed_codes(const typename S::F* words, int i, const float* codes) {
  constexpr int kLow = kBits == 4 ? 4 : 2;
  const int at = i % 4 * 8 + i / 8 * kLow;
  if constexpr (kCodes && kLooksUpBits<S, kBits>) {
    return S::template look_up_bits<kBits>(codes, words[i % 8 / 4], at, words[kBits == 3 ? 2 : 0], i);
  } else {
    typename S::F level = S::template bits_at<kLow>(words[i % 8 / 4], at);
    if constexpr (kBits == 3) level = S::fma(S::template bits_at<1>(words[2], i), S::set(4.0f), level);
    if constexpr (kCodes) return S::template look_up<kBits>(codes, level);
    return level;
  }
}

}  // namespace
}  // namespace millrace
