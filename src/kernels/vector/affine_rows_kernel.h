// Decodes levels with scales and zeros (AffineRows) in vectors, bit-identical to the reference. The product of a level
// or an f16 code with an f16 scale is exact in f32, so a fused multiply-add gives the same result as a product and a
// sum. Include after a simd_*.h and affine_levels.h.
#pragma once

#include <cstring>

#include "kernels/ops.h"

namespace millrace {
namespace {

template <int kBits, bool kCodes>
struct AffineUnit {
  static constexpr int kValues = static_cast<int>(affine_unit_values(kBits));
  static constexpr int kBytes = static_cast<int>(affine_unit_bytes(kBits));
  static constexpr int kVectors = kValues / Simd::kLanes;

  const float* codes;
  Simd::F scale[kVectors], zero[kVectors];

  // Loads a scale and a zero for each value of a unit.
  void load_each(const uint8_t* scales, const uint8_t* zeros) {
    for (int v = 0; v < kVectors; ++v) {
      scale[v] = Simd::load_f16(scales + 2 * v * Simd::kLanes);
      zero[v] = Simd::load_f16(zeros + 2 * v * Simd::kLanes);
    }
  }
  // Loads one scale and zero for all values.
  void load_one(const uint8_t* scales, const uint8_t* zeros) {
    const Simd::F s = Simd::set(Simd::f16(scales)), z = Simd::set(Simd::f16(zeros));
    for (int v = 0; v < kVectors; ++v) scale[v] = s, zero[v] = z;
  }
  // Writes a whole unit of f16.
  void decode(const uint8_t* levels, uint8_t* out) const {
    Simd::F code[kVectors];
    unit_codes<kBits, kCodes>(levels, codes, code);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      Simd::store_f16(out + 2 * v * Simd::kLanes, Simd::fma(code[v], scale[v], zero[v]));
  }
};

// Decodes the last `n` columns, fewer than those of a unit.
template <typename Unit>
void decode_last(const Unit& unit, const uint8_t* levels, int64_t n, uint8_t* out) {
  uint8_t whole[2 * Unit::kValues];
  unit.decode(levels, whole);
  std::memcpy(out, whole, static_cast<size_t>(2 * n));
}

// Scales of columns stay in registers for all rows.
template <int kBits, bool kCodes>
void decode_columns(const AffineRows& a) {
  using Unit = AffineUnit<kBits, kCodes>;
  for (int64_t c = 0; c < a.cols; c += Unit::kValues) {
    const int64_t n = a.cols - c < Unit::kValues ? a.cols - c : Unit::kValues;
    const uint8_t* levels = a.levels + c / Unit::kValues * Unit::kBytes;
    uint8_t* out = a.out + 2 * c;
    Unit unit;
    unit.codes = a.codes;
    if (n == Unit::kValues) {
      unit.load_each(a.scales + 2 * c, a.zeros + 2 * c);
      for (int64_t r = 0; r < a.rows; ++r) unit.decode(levels + r * a.stride, out + 2 * r * a.cols);
      continue;
    }
    uint8_t scales[2 * Unit::kValues] = {}, zeros[2 * Unit::kValues] = {};
    std::memcpy(scales, a.scales + 2 * c, static_cast<size_t>(2 * n));
    std::memcpy(zeros, a.zeros + 2 * c, static_cast<size_t>(2 * n));
    unit.load_each(scales, zeros);
    for (int64_t r = 0; r < a.rows; ++r) decode_last(unit, levels + r * a.stride, n, out + 2 * r * a.cols);
  }
}

template <int kBits, bool kCodes>
void decode_groups(const AffineRows& a) {
  using Unit = AffineUnit<kBits, kCodes>;
  const int64_t groups = (a.cols + a.group - 1) / a.group;
  for (int64_t r = 0; r < a.rows; ++r) {
    const uint8_t* levels = a.levels + r * a.stride;
    uint8_t* out = a.out + 2 * r * a.cols;
    for (int64_t g = 0; g < groups; ++g) {
      Unit unit;
      unit.codes = a.codes;
      unit.load_one(a.scales + 2 * (r * groups + g), a.zeros + 2 * (r * groups + g));
      const int64_t end = (g + 1) * a.group < a.cols ? (g + 1) * a.group : a.cols;
      int64_t c = g * a.group;
      for (; c + Unit::kValues <= end; c += Unit::kValues)
        unit.decode(levels + c / Unit::kValues * Unit::kBytes, out + 2 * c);
      if (c < end) decode_last(unit, levels + c / Unit::kValues * Unit::kBytes, end - c, out + 2 * c);
    }
  }
}

template <int kBits>
void decode_affine_bits(const AffineRows& a) {
  if (a.codes)
    a.group > 0 ? decode_groups<kBits, true>(a) : decode_columns<kBits, true>(a);
  else
    a.group > 0 ? decode_groups<kBits, false>(a) : decode_columns<kBits, false>(a);
}

inline void decode_affine(const AffineRows& a) noexcept {
  if (a.bits == 2) return decode_affine_bits<2>(a);
  if (a.bits == 3) return decode_affine_bits<3>(a);
  decode_affine_bits<4>(a);
}

}  // namespace
}  // namespace millrace
