// The loop of 8-bit dot products of bandwidth.h, with AVX-VNNI.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/bandwidth.h"

namespace millrace {
namespace {

constexpr int kChains = 12;

int32_t int8(int64_t rounds) {
  __m256i sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm256_set1_epi32(c);
  const __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(-1);
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m256i& s : sum) s = _mm256_dpbusd_avx_epi32(s, a, b);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_epi32(sum[0], sum[c]);
  return _mm256_extract_epi32(sum[0], 0);
}

}  // namespace

RoofKernels roof_kernels_avxvnni() { return {.int8 = int8, .int8_operations = kChains * 32 * 2}; }

}  // namespace millrace
#endif
