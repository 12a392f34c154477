// The loop of 8-bit dot products of bandwidth.h, with VNNI.
#if defined(__x86_64__)
// GCC 12 warns about the deliberately undefined operands in its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/bandwidth.h"

namespace millrace {
namespace {

constexpr int kChains = 12;

int32_t int8(int64_t rounds) {
  __m512i sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_epi32(c);
  const __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(-1);
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m512i& s : sum) s = _mm512_dpbusd_epi32(s, a, b);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_epi32(sum[0], sum[c]);
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(sum[0]));
}

}  // namespace

RoofKernels roof_kernels_avx512vnni() { return {.int8 = int8, .int8_operations = kChains * 64 * 2}; }

}  // namespace millrace
#endif
