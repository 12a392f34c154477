// Levels of columns in vectors of 16 floats.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "kernels/column_levels.h"

namespace millrace {
namespace column_levels_avx512 {

constexpr int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));

inline Floats lesser(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats greater(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Ints plus_if_less(Ints n, Floats a, Floats b) {
  const __m512i x = (__m512i)n;
  return (Ints)_mm512_mask_add_epi32(x, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x, _mm512_set1_epi32(1));
}
inline Ints if_less(Floats a, Floats b, Ints yes, Ints no) {
  return (Ints)_mm512_mask_mov_epi32((__m512i)no, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), (__m512i)yes);
}
inline Ints if_equal(Floats a, Floats b, Ints yes, Ints no) {
  return (Ints)_mm512_mask_mov_epi32((__m512i)no, _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), (__m512i)yes);
}
inline uint32_t bits_above(Ints x, int least) { return _mm512_cmpgt_epi32_mask((__m512i)x, _mm512_set1_epi32(least)); }
// Stores the units of one token's levels, without the third bit of 3. Lanes 8 apart become a byte.
template <int kBits>
inline void put_units(uint8_t* to, const Ints* level) {
  const auto a = (__m512i)level[0], b = (__m512i)level[1];
  if constexpr (kBits == 4) {
    const __m512i low = _mm512_shuffle_i64x2(a, b, 0x44), high = _mm512_shuffle_i64x2(a, b, 0xee);
    const __m512i units = _mm512_or_si512(low, _mm512_slli_epi32(high, 4));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(units));
  } else {
    const __m512i both = _mm512_or_si512(a, _mm512_slli_epi32(b, 4));  // of bits 0 to 1 and 4 to 5
    const __m256i low = _mm512_castsi512_si256(both), high = _mm512_extracti64x4_epi64(both, 1);
    const __m256i unit = _mm256_or_si256(low, _mm256_slli_epi32(high, 2));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm256_cvtepi32_epi8(unit));
  }
}

inline uint32_t bits_less(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline uint32_t bits_equal(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline float least_of(Floats x) { return _mm512_reduce_min_ps(x); }
inline void put_bytes(uint8_t* to, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8((__m512i)x));
}

#include "kernels/column_levels.inc"
#include "kernels/row_levels.inc"

}  // namespace column_levels_avx512

const ColumnLevelKernels& avx512_column_levels() { return column_levels_avx512::kKernels; }

}  // namespace millrace
#endif
