// The training loops for AVX-512 with bfloat16 products: an 8 x 32 tile of sums stays in registers.
#if defined(__x86_64__)

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/training.h"

namespace millrace {
namespace training_avx512 {

#include "kernels/training_bf16.inc"
#include "kernels/x86/training_vectors.inc"

inline __m512bh pairs16(const uint32_t* from) { return std::bit_cast<__m512bh>(_mm512_loadu_si512(from)); }

inline void tile(const uint32_t* a, int64_t a_row, int64_t a_pair, const uint32_t* b, int64_t pairs, float* c,
                 int64_t c_row, bool add) {
  constexpr int kRows = 8;
  __m512 low[kRows], high[kRows];
  for (int r = 0; r < kRows; ++r) {
    low[r] = add ? _mm512_loadu_ps(c + r * c_row) : _mm512_setzero_ps();
    high[r] = add ? _mm512_loadu_ps(c + r * c_row + 16) : _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < pairs; ++p) {
    const __m512bh left = pairs16(b + p * 32), right = pairs16(b + p * 32 + 16);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto value = std::bit_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[r * a_row + p * a_pair])));
      low[r] = _mm512_dpbf16_ps(low[r], value, left);
      high[r] = _mm512_dpbf16_ps(high[r], value, right);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(c + r * c_row, low[r]);
    _mm512_storeu_ps(c + r * c_row + 16, high[r]);
  }
}

void product(const TrainingProduct& p) {
  const int64_t at_once = p.a_tile == 0 ? p.pairs : 16, step = p.a_tile == 0 ? 16 * p.a_pair : p.a_tile;
  for (int64_t column = 0; column < p.columns; column += 32) {
    const uint32_t* b = p.b + column / 32 * p.b_panel;
    for (int64_t row = 0; row < p.rows; row += 8)
      for (int64_t from = 0; from < p.pairs; from += at_once)
        tile(p.a + row * p.a_row + from / 16 * step, p.a_row, p.a_pair, b + from * 32, at_once,
             p.c + row * p.c_row + column / 32 * p.c_panel, p.c_row, p.add || from > 0);
  }
}

#include "kernels/training_loops.inc"

}  // namespace training_avx512

const TrainingKernels& avx512_training_kernels() {
  using namespace training_avx512;
  static constexpr TrainingKernels kKernels = {
      "avx512", product,       round_all, pack_columns,  pack_rows, norm,    norm_backward, silu,   silu_backward,
      relu,     relu_backward, rotate,    cross_entropy, mix,       squares, adam,          attend, attend_backward};
  return kKernels;
}

}  // namespace millrace

#endif
