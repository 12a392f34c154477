// Operations that the kernels of weights with parts need in addition to simd_avx2.h, which is included first: 8 lanes
// of f32.
#pragma once

namespace millrace {
namespace {

struct PartSimd {
  using F = __m256;

  // The power of two at or below each magnitude; 0 below the normal numbers.
  static F exponent(F v) { return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000))); }

  // For values at a distance of kDistance: writes their sum to the lower lane, and the lower minus the upper to the
  // upper lane.
  template <int kDistance>
  static F pair_sums(F v) {
    constexpr int kUpper = kDistance == 1 ? 0xaa : kDistance == 2 ? 0xcc : 0xf0;
    F other;
    if constexpr (kDistance == 1) other = _mm256_permute_ps(v, 0xb1);
    if constexpr (kDistance == 2) other = _mm256_permute_ps(v, 0x4e);
    if constexpr (kDistance == 4) other = _mm256_permute2f128_ps(v, v, 0x01);
    return _mm256_blend_ps(_mm256_add_ps(v, other), _mm256_sub_ps(other, v), kUpper);
  }

  // 16 values within [-128, 127] as int8, rounded to nearest even; returns their sum.
  static int store_levels16(uint8_t* p, const F (&v)[2]) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
    const __m128i sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
  }
};

}  // namespace
}  // namespace millrace
