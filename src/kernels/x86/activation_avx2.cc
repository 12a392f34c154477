// Rounds activation rows for AVX2; the same bits as ref/activation_ref.cc (see there for why they are).
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/families.h"

namespace millrace {
namespace {

constexpr int kTinyBits = 0x0d800000;  // 2^-100
constexpr int kInfinityBits = 0x7f800000;

// 8 values of a row of n from position i; beyond the row zero.
inline __m256 load_values(const float* x, int64_t i, int64_t n) {
  if (i + 8 <= n) return _mm256_loadu_ps(x + i);
  if (i >= n) return _mm256_setzero_ps();
  __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_maskload_ps(x + i, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n - i)), lanes));
}

inline int largest_lane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}

// Sum of 16 bytes.
inline int sum_bytes(__m128i q) {
  __m128i sums = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

inline void encode_group(const float* x, int64_t i, int64_t n, uint8_t* record) {
  __m256 v[4];
  __m256i largest = _mm256_setzero_si256();
  for (int j = 0; j < 4; ++j) {
    v[j] = load_values(x, i + 8 * j, n);
    __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(v[j]), _mm256_set1_epi32(0x7fffffff));
    largest = _mm256_max_epi32(largest, magnitude);
  }
  int bits = largest_lane(largest);
  bool usable = bits >= kTinyBits && bits < kInfinityBits;
  float magnitude = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
  __m256i level[4];
  __m256 inverse = _mm256_set1_ps(usable ? 127.0f / magnitude : 0.0f);
  for (int j = 0; j < 4; ++j) {
    level[j] = usable ? _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inverse)) : _mm256_setzero_si256();
  }
  __m256i words0 = _mm256_permute4x64_epi64(_mm256_packs_epi32(level[0], level[1]), 0xd8);
  __m256i words1 = _mm256_permute4x64_epi64(_mm256_packs_epi32(level[2], level[3]), 0xd8);
  __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(words0, words1), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(record), bytes);
  int sum0 = sum_bytes(_mm256_castsi256_si128(bytes)), sum1 = sum_bytes(_mm256_extracti128_si256(bytes, 1));
  auto* scale = reinterpret_cast<float*>(record + kQ8ScaleAt);
  auto* offset = reinterpret_cast<float*>(record + kQ8OffsetAt);
  auto* negated_sums = reinterpret_cast<int32_t*>(record + kQ8SumsAt);
  negated_sums[0] = -sum0;
  negated_sums[1] = -sum1;
  if (usable) {
    *scale = magnitude / 127.0f;
    *offset = *scale * static_cast<float>(sum0 + sum1);
  } else {
    __m128i nan = _mm_cvtsi32_si128(bits >= kInfinityBits ? 0x7fc00000 : 0);
    *scale = *offset = _mm_cvtss_f32(_mm_castsi128_ps(nan));
  }
}

void encode_q8(const float* x, int64_t n, uint8_t* destination) {
  int64_t padded = padded_values(n);
  for (int64_t i = 0; i < padded; i += kActivationGroup, destination += kQ8GroupBytes) {
    encode_group(x, i, n, destination);
  }
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

void encode_bf16(const float* x, int64_t n, uint8_t* destination) {
  auto* values = reinterpret_cast<uint16_t*>(destination);
  int64_t padded = padded_values(n);
  for (int64_t i = 0; i < padded; i += 16) {
    __m256i words = _mm256_packus_epi32(round_bf16(load_values(x, i, n)), round_bf16(load_values(x, i + 8, n)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + i), _mm256_permute4x64_epi64(words, 0xd8));
  }
}

void encode_activation(Activation kind, const float* x, int64_t n, uint8_t* destination) {
  if (kind == Activation::q8) return encode_q8(x, n, destination);
  if (kind == Activation::bf16) return encode_bf16(x, n, destination);
  auto* values = reinterpret_cast<float*>(destination);
  int64_t padded = padded_values(n);
  for (int64_t i = 0; i < padded; i += 8) _mm256_storeu_ps(values + i, load_values(x, i, n));
}

}  // namespace

void add_activation_avx2(KernelTable& table) { table.encode_activation = encode_activation; }

}  // namespace millrace
#endif
