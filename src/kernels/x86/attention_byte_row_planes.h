// Rounds numbers to 16-bit integers in two planes of signed bytes, 256 high + low, for attention over rows of levels
// (attention_byte_rows.h). Include after attention_byte_row_formats.h.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

constexpr float kMaxWhole = 127 * 256;
constexpr float kMinUnit = 0x1p-100f;  // if all numbers are smaller, they are treated as zero

// Returns the value of the integer 1, if `most` is the largest magnitude to represent. If `most` is NaN or infinite, so
// is the result, and sums are not finite.
inline float unit_of(float most) { return most < kMinUnit ? 0 : most * (1 / kMaxWhole); }
inline float inverse_of(float most) { return most < kMinUnit ? 0 : kMaxWhole / most; }

// Computes the largest magnitude; NaN if a value is NaN.
inline __m512i larger_size(__m512i most, __m512 x) {
  return _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}
inline float largest_size(__m512i most) {
  const int32_t bits = _mm512_reduce_max_epi32(most);
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

inline __m512i to_whole(__m512 x, __m512 inverse) { return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)); }

inline __m512i multiply_bytes(__m512i sum, __m512i levels, __m512i plane) {
  return _mm512_dpbusd_epi32(sum, levels, plane);
}

}  // namespace
}  // namespace millrace
