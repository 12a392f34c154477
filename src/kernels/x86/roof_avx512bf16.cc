// The loop of bfloat16 dot products of bandwidth.h.
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

// Two products per lane: 32 per vector.
float bf16(int64_t rounds) {
  __m512 sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_ps(static_cast<float>(c));
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
  const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(-0.5f), _mm512_set1_ps(0.5f));
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m512& s : sum) s = _mm512_dpbf16_ps(s, a, b);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_ps(sum[0], sum[c]);
  return _mm512_cvtss_f32(sum[0]);
}

}  // namespace

RoofKernels roof_kernels_avx512bf16() { return {.bf16 = bf16, .bf16_operations = kChains * 32 * 2}; }

}  // namespace millrace
#endif
