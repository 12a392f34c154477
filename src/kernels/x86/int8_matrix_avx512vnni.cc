// Kernels of Int8Matrix for AVX-512 with VNNI. A step multiplies four columns of 32 rows by up to 12 tokens. Weights
// are the unsigned operand, so that a token's four levels are one broadcast word and its correction is one number.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <bit>

#include "kernels/int8_matrix.h"

namespace millrace {
namespace {

constexpr int64_t kTileTokens = 12;

// Levels [c, c + 16) of the input.
[[gnu::always_inline]] inline __m512i encode_int8_part(const Int8Input& input, int64_t c, __mmask16 valid,
                                                       __m512 inverse, __m512 limit, Int8InputSum& out) {
  const __m512 x = _mm512_maskz_loadu_ps(valid, input.x + c);
  const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));  // beyond int32 and NaN: INT32_MIN
  const __m512i top = _mm512_set1_epi32(127), bottom = _mm512_set1_epi32(-127);
  // An input beyond int32 has the level of its sign.
  const __mmask16 huge = _mm512_cmp_ps_mask(_mm512_mul_ps(x, inverse), _mm512_set1_ps(127), _CMP_GT_OQ);
  const __m512i clamped = _mm512_max_epi32(_mm512_min_epi32(rounded, top), bottom);
  const __m512i level = _mm512_mask_mov_epi32(clamped, huge & _mm512_cmplt_epi32_mask(rounded, bottom), top);
  const __mmask16 outside = valid & (_mm512_cmpgt_epi32_mask(rounded, top) | _mm512_cmplt_epi32_mask(rounded, bottom));
  if (outside && input.outliers) {
    alignas(64) float residuals[16];
    const __m512 kept =
        _mm512_mask_sub_ps(limit, _mm512_cmplt_epi32_mask(level, _mm512_setzero_si512()), _mm512_setzero_ps(), limit);
    _mm512_store_ps(residuals, _mm512_sub_ps(x, kept));
    for (uint32_t left = outside; left; left &= left - 1) {
      const int at = std::countr_zero(left);
      input.outliers[out.outliers++] = {static_cast<int32_t>(c + at), residuals[at]};
    }
  }
  return level;
}

Int8InputSum encode_int8_avx512(const Int8Input& input) {
  const __m512 inverse = _mm512_set1_ps(input.scale > 0 ? 1 / input.scale : 0);
  const __m512 limit = _mm512_set1_ps(127 * input.scale);
  Int8InputSum out;
  __m512i sum = _mm512_setzero_si512();
  const int64_t stride = int8_input_bytes(input.cols);
  for (int64_t c = 0; c < stride; c += 16) {
    const int64_t left = std::clamp<int64_t>(input.cols - c, 0, 16);
    const auto valid = static_cast<__mmask16>((1u << left) - 1);
    const __m512i level = encode_int8_part(input, c, valid, inverse, limit, out);
    sum = _mm512_add_epi32(sum, level);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(input.levels + c), _mm512_cvtepi32_epi8(level));
  }
  out.sum = 128 * _mm512_reduce_add_epi32(sum);
  return out;
}

// Rows of two tiles (or one) times T tokens.
template <int T, int Tiles>
[[gnu::always_inline]] inline void multiply_int8_tokens(const Int8Product& product, int64_t tile, int64_t token) {
  const Int8Matrix& matrix = *product.matrix;
  const int64_t groups = (matrix.cols + 3) / 4, stride = int8_input_bytes(matrix.cols);
  const uint8_t* const weights = matrix.packed.data() + tile * groups * 64;
  const int8_t* const levels = product.levels + token * stride;
  __m512i sums[T][Tiles];
  for (int t = 0; t < T; ++t)
    for (int i = 0; i < Tiles; ++i) sums[t][i] = _mm512_set1_epi32(-product.sums[token + t]);
  for (int64_t g = 0; g < groups; ++g) {
    __m512i w[Tiles];
    for (int i = 0; i < Tiles; ++i) w[i] = _mm512_loadu_si512(weights + (i * groups + g) * 64);
    for (int t = 0; t < T; ++t) {
      int32_t four;
      __builtin_memcpy(&four, levels + t * stride + 4 * g, 4);
      const __m512i x = _mm512_set1_epi32(four);
      for (int i = 0; i < Tiles; ++i) sums[t][i] = _mm512_dpbusd_epi32(sums[t][i], w[i], x);
    }
  }
  const __m512 scale = _mm512_set1_ps(product.scale);
  for (int t = 0; t < T; ++t) {
    float* const y = product.y[token + t];
    if (!y) continue;
    for (int i = 0; i < Tiles; ++i) {
      const int64_t row = (tile + i) * kInt8TileRows;
      const int64_t left = std::min<int64_t>(16, matrix.rows - row);
      _mm512_mask_storeu_ps(y + row, static_cast<__mmask16>((1u << left) - 1),
                            _mm512_mul_ps(_mm512_cvtepi32_ps(sums[t][i]), scale));
    }
  }
}

template <int Tiles>
void multiply_int8_tiles(const Int8Product& product, int64_t tile) {
  int64_t t = 0;
  for (; t + kTileTokens <= product.tokens; t += kTileTokens)
    multiply_int8_tokens<kTileTokens, Tiles>(product, tile, t);
  for (; t + 4 <= product.tokens; t += 4) multiply_int8_tokens<4, Tiles>(product, tile, t);
  for (; t < product.tokens; ++t) multiply_int8_tokens<1, Tiles>(product, tile, t);
}

void multiply_int8_avx512vnni(const Int8Product& product, int64_t begin, int64_t end) {
  for (; begin + 2 <= end; begin += 2) multiply_int8_tiles<2>(product, begin);
  if (begin < end) multiply_int8_tiles<1>(product, begin);
}

void add_int8_columns_avx512(const Int8Term* terms, int64_t count, int64_t begin, int64_t end, float* y) {
  for (; begin < end; begin += 64) {
    __mmask16 valid[4];
    __m512 sums[4];
    for (int i = 0; i < 4; ++i) {
      const int64_t left = std::clamp<int64_t>(end - begin - 16 * i, 0, 16);
      valid[i] = static_cast<__mmask16>((1u << left) - 1);
      sums[i] = _mm512_maskz_loadu_ps(valid[i], y + begin + 16 * i);
    }
    for (int64_t n = 0; n < count; ++n) {
      const __m512 residual = _mm512_set1_ps(terms[n].residual);
      const float* const column = terms[n].column + begin;
      for (int i = 0; i < 4; ++i)
        sums[i] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(valid[i], column + 16 * i), residual, sums[i]);
    }
    for (int i = 0; i < 4; ++i) _mm512_mask_storeu_ps(y + begin + 16 * i, valid[i], sums[i]);
  }
}

}  // namespace

Int8Kernels int8_kernels_avx512vnni() {
  return {encode_int8_avx512, multiply_int8_avx512vnni, add_int8_columns_avx512};
}

}  // namespace millrace
#endif
