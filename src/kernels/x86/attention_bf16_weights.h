// Converts scores to weights for the bf16 attention kernel (attention_bf16.h): masks, maxima and exponentials of one
// row of a partition. Include after simd_avx512.h, simd_math.h and attention_bf16_tiles.h.
//
// A row has at most 256 scores in f32, in whole chunks of 32. Scores of unseen keys become kUnseen, whose weight is
// zero.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.693147180559945309f;
// Maximum exponent (base 2) of a weight with a unified maximum: far beyond kUnifiedRange, but finite.
constexpr float kMaxPower = 100;
constexpr float kUnseen = -1e30f;

// Slots [begin, end) of the partition, relative to key_begin.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return begin >= end; }
};

inline __m512 multiply_add(__m512 sum, __m512i a, __m512i b) {
  __m512bh x, y;
  std::memcpy(&x, &a, sizeof x);
  std::memcpy(&y, &b, sizeof y);
  return _mm512_dpbf16_ps(sum, x, y);
}

// Returns 2^x for weights, zero below 2^-125. The relative error is 4e-6, about 2^-10 of the bf16 rounding error. x is
// split into an integer and a remainder for a polynomial. Adding 1.5 * 2^23 leaves the integer in the low bits of
// `shifted`.
inline __m512 power_of_two(__m512 x) {
  const __m512 magic = _mm512_set1_ps(12582912.0f);
  const __m512 shifted = _mm512_add_ps(x, magic);
  const __m512 r = _mm512_sub_ps(x, _mm512_sub_ps(shifted, magic));
  __m512 y = _mm512_fmadd_ps(_mm512_set1_ps(9.7829126e-3f), r, _mm512_set1_ps(5.5976884e-2f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(2.4020711e-1f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(6.9311360e-1f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
  const __mmask16 seen = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ);  // true also for NaN
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_maskz_add_epi32(seen, _mm512_castps_si512(y), exponent));
}

// Applies the softcap and the mask to a row's scores of `chunks`. Vectors whose keys are all seen need no mask.
inline void mask_scores(float* score, KeyRange chunks, KeyRange seen, float softcap) {
  for (int64_t j = chunks.begin; j < chunks.end; j += 16) {
    if (softcap == 0 && j >= seen.begin && j + 16 <= seen.end) {
      j = seen.end / 16 * 16 - 16;
      continue;
    }
    __m512 s = _mm512_load_ps(score + j);
    if (softcap > 0) s = Simd::mul(Simd::set(softcap), tanh(Simd::div(s, Simd::set(softcap))));
    uint32_t mask = seen.end >= j + 16 ? 0xffffu : seen.end <= j ? 0 : (1u << (seen.end - j)) - 1;
    if (seen.begin > j) mask &= seen.begin >= j + 16 ? 0 : ~((1u << (seen.begin - j)) - 1);
    _mm512_store_ps(score + j, _mm512_mask_mov_ps(Simd::set(kUnseen), static_cast<__mmask16>(mask), s));
  }
}

inline float largest_score(const float* score, KeyRange chunks) {
  __m512 top[2] = {_mm512_set1_ps(kNoKey), _mm512_set1_ps(kNoKey)};
  for (int64_t j = chunks.begin; j < chunks.end; j += 32) {
    top[0] = Simd::max(top[0], _mm512_load_ps(score + j));
    top[1] = Simd::max(top[1], _mm512_load_ps(score + j + 16));
  }
  return Simd::largest(Simd::max(top[0], top[1]));
}

// Converts a row's scores to weights relative to 2^shift. Returns their sum. kAbove: weights may exceed 1.
template <bool kAbove>
float weigh_row(const float* score, uint8_t* weight, KeyRange chunks, __m512 shift) {
  const __m512 log2_e = _mm512_set1_ps(kLog2E);
  const __m512i ones = _mm512_set1_epi16(0x3f80);
  __m512 total = _mm512_setzero_ps();
  for (int64_t j = chunks.begin; j < chunks.end; j += 32) {
    __m512 x = _mm512_fmsub_ps(_mm512_load_ps(score + j), log2_e, shift);
    __m512 y = _mm512_fmsub_ps(_mm512_load_ps(score + j + 16), log2_e, shift);
    if constexpr (kAbove) {  // a NaN stays
      x = _mm512_min_ps(_mm512_set1_ps(kMaxPower), x);
      y = _mm512_min_ps(_mm512_set1_ps(kMaxPower), y);
    }
    const __m512 low = power_of_two(x), high = power_of_two(y);
    const __m512i words = round_to_bf16(low, high);
    _mm512_store_si512(weight + j * 2, words);
    total = multiply_add(total, words, ones);
  }
  return Simd::sum(total);
}

}  // namespace
}  // namespace millrace
