// Products with a codebook for AVX2: a table of 16 weights is two registers, a look-up two permutations and a choice.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/families.h"
#include "kernels/x86/matmul_codebook.h"

namespace millrace {
namespace {

struct CodebookAvx2 {
  struct V {
    __m256 a, b;  // lanes 0 to 7, 8 to 15
  };
  using Table = V;
  struct Indices {
    __m256i a, b;  // low nibble: of one vector, high nibble: of the next
  };
  using Four = __m128;
  static constexpr int kLanes = 16;
  static constexpr int kTile = 1;  // 8 accumulators of the 16 registers

  static V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, V v) {
    _mm256_store_ps(p, v.a);
    _mm256_store_ps(p + 8, v.b);
  }
  static V fma(V a, V b, V c) { return {_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)}; }
  static Table load_table(const uint8_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
  }
  static Indices load_indices(const uint8_t* p) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  // A permutation reads the low three bits of its indices; the fourth, as the sign, chooses the table's half.
  static __m256 find(Table table, __m256i index) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.a, index), _mm256_permutevar8x32_ps(table.b, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
  }
  static V low(Table table, Indices both) { return {find(table, both.a), find(table, both.b)}; }
  static V high(Table table, Indices both) {
    return {find(table, _mm256_srli_epi32(both.a, 4)), find(table, _mm256_srli_epi32(both.b, 4))};
  }

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
};

}  // namespace

void add_matmul_codebook_avx2(KernelTable& table) { add_codebook_kernels<CodebookAvx2>(table); }

}  // namespace millrace
#endif
