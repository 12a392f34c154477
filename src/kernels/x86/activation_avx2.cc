// Rounding of activation rows for AVX2.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/vector/activation_kernel.h"

namespace millrace {
namespace {

// 8 values of a row of n from position i; zero beyond the row.
inline __m256 load_values(const float* x, int64_t i, int64_t n) {
  if (i + 8 <= n) return _mm256_loadu_ps(x + i);
  if (i >= n) return _mm256_setzero_ps();
  __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_maskload_ps(x + i, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n - i)), lanes));
}

inline __m256i magnitude_bits(__m256 v) {
  return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

inline uint32_t largest_lane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

// Sum of 16 bytes.
inline int sum_bytes(__m128i q) {
  __m128i sums = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

// Rounds to the upper 16 bits of each lane, ties to even; NaNs become quiet (tensor/half.h f32_to_bf16).
inline __m256i round_bf16(__m256 v) {
  __m256i bits = _mm256_castps_si256(v);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}

struct ValuesAvx2 {
  __m256 v[4];
  uint32_t largest;

  ValuesAvx2(const float* x, int64_t i, int64_t n) {
    __m256i magnitudes = _mm256_setzero_si256();
    for (int j = 0; j < 4; ++j) {
      v[j] = load_values(x, i + 8 * j, n);
      magnitudes = _mm256_max_epi32(magnitudes, magnitude_bits(v[j]));
    }
    largest = largest_lane(magnitudes);
  }

  void write_levels(float inverse, uint8_t* levels, int (&sums)[2]) const {
    const __m256 by = _mm256_set1_ps(inverse);
    __m256i level[4];
    for (int j = 0; j < 4; ++j) level[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], by));
    __m256i words0 = _mm256_permute4x64_epi64(_mm256_packs_epi32(level[0], level[1]), 0xd8);
    __m256i words1 = _mm256_permute4x64_epi64(_mm256_packs_epi32(level[2], level[3]), 0xd8);
    __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(words0, words1), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(levels), bytes);
    sums[0] = sum_bytes(_mm256_castsi256_si128(bytes));
    sums[1] = sum_bytes(_mm256_extracti128_si256(bytes, 1));
  }

  static uint32_t largest_of(const float* x, int64_t n) {
    __m256i magnitudes = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i += 8) magnitudes = _mm256_max_epi32(magnitudes, magnitude_bits(load_values(x, i, n)));
    return largest_lane(magnitudes);
  }
  static void encode_f32(const float* x, int64_t n, float* row) {
    const int64_t padded = padded_values(n);
    for (int64_t i = 0; i < padded; i += 8) _mm256_storeu_ps(row + i, load_values(x, i, n));
  }
  static void encode_bf16(const float* x, int64_t n, uint16_t* row) {
    const int64_t padded = padded_values(n);
    for (int64_t i = 0; i < padded; i += 16) {
      __m256i words = _mm256_packus_epi32(round_bf16(load_values(x, i, n)), round_bf16(load_values(x, i + 8, n)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + i), _mm256_permute4x64_epi64(words, 0xd8));
    }
  }
};

}  // namespace

void add_activation_avx2(KernelTable& table) { table.encode_activation = encode_activation<ValuesAvx2>; }

}  // namespace millrace
#endif
