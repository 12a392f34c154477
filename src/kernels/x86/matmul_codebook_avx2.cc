// Products with any codebook for AVX2.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/families.h"
#include "kernels/vector/matmul_codebook.h"

namespace millrace {
namespace {

struct CodebookAvx2 {
  struct V {
    __m256 a, b;  // lanes 0 to 7, 8 to 15
  };
  using Four = __m128;
  static constexpr int kLanes = 16;
  static constexpr int kTile = 1;  // 8 accumulators of the 16 registers

  static V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static V fma(V a, V b, V c) { return {_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)}; }

  static Four four_zeros() { return _mm_setzero_ps(); }
  static __m128i lanes(int64_t count) {
    return _mm_cmpgt_epi32(_mm_set1_epi32(count >= 4 ? 4 : static_cast<int>(count)), _mm_setr_epi32(0, 1, 2, 3));
  }
  static Four load_four(const float* p, int64_t count) { return _mm_maskload_ps(p, lanes(count)); }
  static void store_four(float* p, Four v, int64_t count) { _mm_maskstore_ps(p, lanes(count), v); }
  // Lanes i and i + 8 of two, then + 4: [four lanes of x | four lanes of y].
  static __m256 fold_two(V x, V y) {
    const __m256 p = _mm256_add_ps(x.a, x.b), q = _mm256_add_ps(y.a, y.b);
    return _mm256_add_ps(_mm256_permute2f128_ps(p, q, 0x20), _mm256_permute2f128_ps(p, q, 0x31));
  }
  // ... then + 2, + 1.
  static Four add_sums(Four sum, const V* v) {
    __m256 ab = fold_two(v[0], v[1]), cd = fold_two(v[2], v[3]);
    ab = _mm256_add_ps(ab, _mm256_permute_ps(ab, 0x4e));
    cd = _mm256_add_ps(cd, _mm256_permute_ps(cd, 0x4e));
    ab = _mm256_add_ps(ab, _mm256_permute_ps(ab, 0xb1));
    cd = _mm256_add_ps(cd, _mm256_permute_ps(cd, 0xb1));
    const __m256 ac = _mm256_unpacklo_ps(ab, cd);  // a c . . | b d . .
    const __m128 all = _mm_unpacklo_ps(_mm256_castps256_ps128(ac), _mm256_extractf128_ps(ac, 1));
    return _mm_add_ps(sum, all);
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

void add_matmul_codebook_avx2(KernelTable& table) { add_codebook_kernels<CodebookAvx2>(table); }

}  // namespace millrace
#endif
