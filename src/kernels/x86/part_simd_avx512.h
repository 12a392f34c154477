// Operations that the kernels of weights with parts need in addition to simd_avx512.h, which is included first: 16
// lanes of f32.
#pragma once

namespace millrace {
namespace {

struct PartSimd {
  using F = __m512;

  // The power of two at or below each magnitude; 0 below the normal numbers.
  static F exponent(F v) { return _mm512_and_ps(v, _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000))); }

  // For values at a distance of kDistance: writes their sum to the lower lane, and the lower minus the upper to the
  // upper lane.
  template <int kDistance>
  static F pair_sums(F v) {
    constexpr int kUpper = kDistance == 1 ? 0xaaaa : kDistance == 2 ? 0xcccc : kDistance == 4 ? 0xf0f0 : 0xff00;
    F other;
    if constexpr (kDistance == 1) other = _mm512_permute_ps(v, 0xb1);
    if constexpr (kDistance == 2) other = _mm512_permute_ps(v, 0x4e);
    if constexpr (kDistance == 4) other = _mm512_shuffle_f32x4(v, v, 0xb1);
    if constexpr (kDistance == 8) other = _mm512_shuffle_f32x4(v, v, 0x4e);
    return _mm512_mask_sub_ps(_mm512_add_ps(v, other), kUpper, other, v);
  }

  // 16 values within [-128, 127] as int8, rounded to nearest even; returns their sum.
  static int store_levels16(uint8_t* p, const F (&v)[1]) {
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v[0]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
    const __m128i sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
  }
};

}  // namespace
}  // namespace millrace
