// The AVX2 loops of bandwidth.h. Twelve independent chains hide the latency of the multiply-adds.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/bandwidth.h"

namespace millrace {
namespace {

constexpr int kChains = 12;
constexpr int64_t kAheadBytes = 8192;

template <bool kAhead>
uint64_t read(const uint8_t* data, int64_t bytes) {
  __m256i sum[8];
  for (__m256i& s : sum) s = _mm256_setzero_si256();
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int c = 0; c < 8; ++c) {
      if (kAhead && c % 2 == 0) __builtin_prefetch(data + i + c * 32 + kAheadBytes);
      sum[c] = _mm256_add_epi64(sum[c], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + c * 32)));
    }
  }
  for (int c = 1; c < 8; ++c) sum[0] = _mm256_add_epi64(sum[0], sum[c]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sum[0], 0));
}

float fma(int64_t rounds) {
  __m256 sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm256_set1_ps(static_cast<float>(c));
  const __m256 a = _mm256_set1_ps(0.999f);
  const __m256 b = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m256& s : sum) s = _mm256_fmadd_ps(s, a, b);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_ps(sum[0], sum[c]);
  return _mm256_cvtss_f32(sum[0]);
}

// Unsigned times signed bytes to 16 bits to 32: three instructions for 32 products.
int32_t int8(int64_t rounds) {
  constexpr int kSums = 6;
  __m256i sum[kSums];
  for (int c = 0; c < kSums; ++c) sum[c] = _mm256_set1_epi32(c);
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(-1);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m256i& s : sum) {
      asm volatile("" : "+x"(a));  // otherwise the products would be computed once
      s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  for (int c = 1; c < kSums; ++c) sum[0] = _mm256_add_epi32(sum[0], sum[c]);
  return _mm256_extract_epi32(sum[0], 0);
}

}  // namespace

RoofKernels roof_kernels_avx2() {
  return {read<false>, read<true>, fma, kChains * 8 * 2, int8, 6 * 32 * 2, nullptr, 0};
}

}  // namespace millrace
#endif
