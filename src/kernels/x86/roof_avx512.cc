// The AVX-512 loops of bandwidth.h. Twelve independent chains hide the latency of the multiply-adds.
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
constexpr int64_t kAheadBytes = 8192;

template <bool kAhead>
uint64_t read(const uint8_t* data, int64_t bytes) {
  __m512i sum[8];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  for (int64_t i = 0; i < bytes; i += 512) {
    for (int c = 0; c < 8; ++c) {
      if (kAhead) __builtin_prefetch(data + i + c * 64 + kAheadBytes);
      sum[c] = _mm512_add_epi64(sum[c], _mm512_load_si512(data + i + c * 64));
    }
  }
  for (int c = 1; c < 8; ++c) sum[0] = _mm512_add_epi64(sum[0], sum[c]);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(sum[0])));
}

float fma(int64_t rounds) {
  __m512 sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_ps(static_cast<float>(c));
  const __m512 a = _mm512_set1_ps(0.999f);
  const __m512 b = _mm512_set1_ps(0.001f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m512& s : sum) s = _mm512_fmadd_ps(s, a, b);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_ps(sum[0], sum[c]);
  return _mm512_cvtss_f32(sum[0]);
}

}  // namespace

RoofKernels roof_kernels_avx512() {
  return {.read = read<false>, .read_ahead = read<true>, .fma = fma, .fma_operations = kChains * 16 * 2};
}

}  // namespace millrace
#endif
