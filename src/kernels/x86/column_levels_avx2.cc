// Levels of columns in vectors of 8 floats.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/column_levels.h"

namespace millrace {
namespace column_levels_avx2 {

constexpr int64_t kLanes = 8;
using Floats = float __attribute__((vector_size(32)));
using Ints = int32_t __attribute__((vector_size(32)));

inline Floats lesser(Floats a, Floats b) { return _mm256_min_ps(a, b); }
inline Floats greater(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Ints plus_if_less(Ints n, Floats a, Floats b) { return n - (a < b); }
inline Ints if_less(Floats a, Floats b, Ints yes, Ints no) { return a < b ? yes : no; }
inline Ints if_equal(Floats a, Floats b, Ints yes, Ints no) { return a == b ? yes : no; }
inline uint32_t bits_above(Ints x, int least) { return static_cast<uint32_t>(_mm256_movemask_ps((__m256)(x > least))); }
inline void put_bytes(uint8_t* to, Ints x) {
  const __m256i lowest = _mm256_set1_epi32(0x0c080400);
  const __m256i words = _mm256_shuffle_epi8((__m256i)x, lowest);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                   _mm_unpacklo_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

inline uint32_t bits_less(Floats a, Floats b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)));
}
inline uint32_t bits_equal(Floats a, Floats b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
}
inline float least_of(Floats x) {
  __m128 half = _mm_min_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_min_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_min_ss(half, _mm_shuffle_ps(half, half, 1)));
}

#include "kernels/column_bytes.inc"
#include "kernels/column_levels.inc"
#include "kernels/row_levels.inc"

}  // namespace column_levels_avx2

const ColumnLevelKernels& avx2_column_levels() { return column_levels_avx2::kKernels; }

}  // namespace millrace
#endif
