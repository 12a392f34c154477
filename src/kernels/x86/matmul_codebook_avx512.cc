// Products with any codebook for AVX-512.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "kernels/families.h"
#include "kernels/vector/matmul_codebook.h"

namespace millrace {
namespace {

struct CodebookAvx512 {
  using V = __m512;
  using Four = __m128;
  static constexpr int kLanes = 16;
  static constexpr int kTile = 6;  // 4 x 6 accumulators, 4 weights and an input fill 29 registers

  static V zero() { return _mm512_setzero_ps(); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }

  static Four four_zeros() { return _mm_setzero_ps(); }
  static __mmask8 lanes(int64_t count) { return static_cast<__mmask8>(count >= 4 ? 15 : (1u << count) - 1); }
  static Four load_four(const float* p, int64_t count) { return _mm_maskz_loadu_ps(lanes(count), p); }
  static void store_four(float* p, Four v, int64_t count) { _mm_mask_storeu_ps(p, lanes(count), v); }
  // Lanes i and i + 8 of each, then + 4, + 2, + 1.
  static Four add_sums(Four sum, const V* v) {
    const V ab = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
    const V cd = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));
    V four = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    four = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4e));
    four = _mm512_add_ps(four, _mm512_permute_ps(four, 0xb1));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm_add_ps(sum, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, four)));
  }

  // Eight weights, as entries of a codebook are stored.
  using Eight = __m256;
  static Eight eight_zeros() { return _mm256_setzero_ps(); }
  static Eight load_eight(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Eight add_eights(Eight a, Eight b) { return _mm256_add_ps(a, b); }
  static Eight scale_eight(Eight a, float by) { return _mm256_mul_ps(a, _mm256_set1_ps(by)); }
  static void store_eight(float* p, Eight v) { _mm256_storeu_ps(p, v); }
};

}  // namespace

void add_matmul_codebook_avx512(KernelTable& table) { add_codebook_kernels<CodebookAvx512>(table); }

}  // namespace millrace
#endif
