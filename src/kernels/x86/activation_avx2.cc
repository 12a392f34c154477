// Rounds activation rows for AVX2; bit-identical to ref/activation_ref.cc, which explains why.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/activation.h"
#include "kernels/families.h"

namespace millrace {
namespace {

constexpr int kTinyBits = 0x0d800000;  // 2^-100
constexpr int kInfinityBits = 0x7f800000;

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

// 32 values and the bits of their largest magnitude.
struct Values {
  __m256 v[4];
  int largest;
  Values(const float* x, int64_t i, int64_t n) {
    __m256i magnitudes = _mm256_setzero_si256();
    for (int j = 0; j < 4; ++j) {
      v[j] = load_values(x, i + 8 * j, n);
      magnitudes = _mm256_max_epi32(magnitudes, magnitude_bits(v[j]));
    }
    largest = largest_lane(magnitudes);
  }
};

inline bool usable(int largest) { return largest >= kTinyBits && largest < kInfinityBits; }

// Writes a record; the levels are the values times `inverse`.
inline void write_group(const Values& values, float inverse, int shift, float scale, uint8_t* record) {
  const __m256 by = _mm256_set1_ps(inverse);
  __m256i level[4];
  for (int j = 0; j < 4; ++j) level[j] = _mm256_cvtps_epi32(_mm256_mul_ps(values.v[j], by));
  __m256i words0 = _mm256_permute4x64_epi64(_mm256_packs_epi32(level[0], level[1]), 0xd8);
  __m256i words1 = _mm256_permute4x64_epi64(_mm256_packs_epi32(level[2], level[3]), 0xd8);
  __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(words0, words1), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(record), bytes);
  const int sum0 = sum_bytes(_mm256_castsi256_si128(bytes)), sum1 = sum_bytes(_mm256_extracti128_si256(bytes, 1));
  *reinterpret_cast<int32_t*>(record + kQ8ShiftAt) = shift;
  *reinterpret_cast<float*>(record + kQ8ScaleAt) = scale;
  *reinterpret_cast<float*>(record + kQ8SumAt) = scale * static_cast<float>(sum0 + sum1);
  *reinterpret_cast<int32_t*>(record + kQ8StartAt) = -(sum0 + sum1) * (1 << kQ8StartBits);
  auto* negated_sums = reinterpret_cast<int32_t*>(record + kQ8SumsAt);
  negated_sums[0] = -sum0;
  negated_sums[1] = -sum1;
}

// Writes a record of zeros or NaN.
inline void write_unusable(float scale, uint8_t* record) {
  std::memset(record, 0, kQ8GroupBytes);
  *reinterpret_cast<float*>(record + kQ8ScaleAt) = scale;
  *reinterpret_cast<float*>(record + kQ8SumAt) = scale;
}

inline float scale_of_unusable(int largest) { return std::bit_cast<float>(largest >= kInfinityBits ? 0x7fc00000 : 0); }

void encode_q8(const float* x, int64_t n, uint8_t* destination) {
  for (int64_t i = 0; i < n; i += kActivationGroup, destination += kQ8GroupBytes) {
    const Values values(x, i, n);
    if (usable(values.largest)) {
      const float magnitude = std::bit_cast<float>(values.largest);
      write_group(values, 127.0f / magnitude, 0, magnitude / 127.0f, destination);
    } else {
      write_unusable(scale_of_unusable(values.largest), destination);
    }
  }
}

// Returns the row's unit.
float encode_q8_shift(const float* x, int64_t n, uint8_t* destination) {
  __m256i magnitudes = _mm256_setzero_si256();
  for (int64_t i = 0; i < n; i += 8) magnitudes = _mm256_max_epi32(magnitudes, magnitude_bits(load_values(x, i, n)));
  const int row_largest = largest_lane(magnitudes);
  if (!usable(row_largest)) {
    std::memset(destination, 0, static_cast<size_t>(q8_unit_at(n)));
    return scale_of_unusable(row_largest);
  }
  const float magnitude = std::bit_cast<float>(row_largest), inverse = 127.0f / magnitude;
  for (int64_t i = 0; i < n; i += kActivationGroup, destination += kQ8GroupBytes) {
    const Values values(x, i, n);
    const int doublings = std::min((row_largest - values.largest) >> 23, kQ8MostShift);
    const int shift = kQ8MostShift - doublings;
    write_group(values, inverse * static_cast<float>(1 << doublings), shift, static_cast<float>(1 << shift),
                destination);
  }
  return magnitude / 127.0f / static_cast<float>(1 << kQ8MostShift);
}

// Either kind; whole groups beyond the row are zeros.
void encode_q8_row(Activation kind, const float* x, int64_t n, uint8_t* destination) {
  auto* unit = reinterpret_cast<float*>(destination + q8_unit_at(n));
  const int64_t written = (n + kActivationGroup - 1) / kActivationGroup * kQ8GroupBytes;
  std::memset(destination + written, 0, static_cast<size_t>(q8_unit_at(n) - written));
  if (kind == Activation::q8_shift) {
    *unit = encode_q8_shift(x, n, destination);
  } else {
    encode_q8(x, n, destination);
    *unit = 1;
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
  if (is_int8(kind)) return encode_q8_row(kind, x, n, destination);
  if (kind == Activation::bf16) return encode_bf16(x, n, destination);
  auto* values = reinterpret_cast<float*>(destination);
  int64_t padded = padded_values(n);
  for (int64_t i = 0; i < padded; i += 8) _mm256_storeu_ps(values + i, load_values(x, i, n));
}

}  // namespace

void add_activation_avx2(KernelTable& table) { table.encode_activation = encode_activation; }

}  // namespace millrace
#endif
