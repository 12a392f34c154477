// select_from for AVX-512.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cfloat>

#include "kernels/ops.h"

namespace millrace {
namespace {

// 16 logits at a time: those that stay move together, and so do their indices; both are then stored in turns.
int64_t select_from(const float* x, int64_t n, float least, int32_t first, Candidate* out) noexcept {
  const __m512 bar = _mm512_set1_ps(least), largest = _mm512_set1_ps(FLT_MAX);
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  __m512i index = _mm512_add_epi32(_mm512_set1_epi32(first),
                                   _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  int64_t kept = 0;
  for (int64_t i = 0; i < n; i += 16, index = _mm512_add_epi32(index, _mm512_set1_epi32(16))) {
    const __mmask16 there = n - i >= 16 ? __mmask16(0xffff) : static_cast<__mmask16>((1u << (n - i)) - 1);
    const __m512 logits = _mm512_maskz_loadu_ps(there, x + i);
    const __mmask16 keep = _mm512_mask_cmp_ps_mask(there, logits, bar, _CMP_GE_OQ);
    if (keep == 0) continue;
    const __m512i values = _mm512_castps_si512(_mm512_maskz_compress_ps(keep, _mm512_min_ps(logits, largest)));
    const __m512i indices = _mm512_maskz_compress_epi32(keep, index);
    const int count = __builtin_popcount(keep);
    _mm512_storeu_si512(out + kept, _mm512_permutex2var_epi32(values, low, indices));
    if (count > 8) _mm512_storeu_si512(out + kept + 8, _mm512_permutex2var_epi32(values, high, indices));
    kept += count;
  }
  return kept;
}

}  // namespace

void add_select_avx512(KernelTable& table) { table.select_from = select_from; }

}  // namespace millrace
#endif
