// Products of Int8Matrix for AVX2, which has no exact dot product of bytes: bytes become words, whose products are
// added in pairs. A vector of sums has two sums for each of four rows.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

#include "kernels/int8_matrix.h"

namespace millrace {
namespace {

constexpr int kFourths = 4;  // of a tile: four rows each

// A tile of 16 rows times T tokens.
template <int T>
[[gnu::always_inline]] inline void multiply_int8_words(const Int8Product& product, int64_t tile, int64_t token) {
  const Int8Matrix& matrix = *product.matrix;
  const int64_t groups = (matrix.cols + 3) / 4, stride = int8_input_bytes(matrix.cols);
  const uint8_t* const weights = matrix.packed.data() + tile * groups * 64;
  const int8_t* const levels = product.levels + token * stride;
  __m256i sums[T][kFourths];
  for (auto& own : sums)
    for (__m256i& sum : own) sum = _mm256_setzero_si256();
  for (int64_t g = 0; g < groups; ++g) {
    __m256i x[T];
    for (int t = 0; t < T; ++t) {
      int32_t four;
      __builtin_memcpy(&four, levels + t * stride + 4 * g, 4);
      x[t] = _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
    }
    for (int i = 0; i < kFourths; ++i) {
      const __m256i w =
          _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + g * 64 + 16 * i)));
      for (int t = 0; t < T; ++t) sums[t][i] = _mm256_add_epi32(sums[t][i], _mm256_madd_epi16(w, x[t]));
    }
  }
  const int64_t rows = std::min(kInt8TileRows, matrix.rows - tile * kInt8TileRows);
  for (int t = 0; t < T; ++t) {
    float* const y = product.y[token + t];
    if (!y) continue;
    alignas(32) int32_t pairs[kFourths * 8];
    for (int i = 0; i < kFourths; ++i) _mm256_store_si256(reinterpret_cast<__m256i*>(pairs + 8 * i), sums[t][i]);
    for (int64_t r = 0; r < rows; ++r)
      y[tile * kInt8TileRows + r] =
          static_cast<float>(pairs[2 * r] + pairs[2 * r + 1] - product.sums[token + t]) * product.scale;
  }
}

void multiply_int8_avx2(const Int8Product& product, int64_t begin, int64_t end) {
  for (; begin < end; ++begin) {
    int64_t t = 0;
    for (; t + 2 <= product.tokens; t += 2) multiply_int8_words<2>(product, begin, t);
    if (t < product.tokens) multiply_int8_words<1>(product, begin, t);
  }
}

}  // namespace

Int8Kernels int8_kernels_avx2() {
  Int8Kernels kernels = int8_kernels_ref();
  kernels.multiply = multiply_int8_avx2;
  return kernels;
}

}  // namespace millrace
#endif
