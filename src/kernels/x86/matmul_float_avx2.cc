// Float matmul for AVX2 and FMA: 8 rows a vector.
#if defined(__x86_64__)
#include <immintrin.h>

#include <bit>

#include "kernels/families.h"
#include "kernels/vector/matmul_float_weights.h"

namespace millrace {
namespace {

struct Lanes8 {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kTile = 6;  // tokens: 2 x 6 accumulators, 2 weights and a broadcast fill 15 of 16 registers
  static constexpr int kPanels = 2;
  static constexpr int kColumnParts = 1;  // number of parts in which a step's columns are multiplied
  // Panels that one and two tokens process together, and whether one token prefetches. For one token, four are faster
  // in cache and slower from memory; figures in docs/performance.md.
  static constexpr int kOnePanels = 2;
  static constexpr int kTwoPanels = 2;
  static constexpr bool kAsksForOne = true;
  static constexpr const char* kLayout = "panels16";
  static F zero() { return _mm256_setzero_ps(); }
  static F multiply_scale(F scale, F part, F acc) { return fma(scale, part, acc); }
  // The sums of the previous columns; count may be 0 or less.
  static F load_sum(const float* y, int64_t count) {
    return count >= kLanes ? _mm256_loadu_ps(y) : _mm256_maskload_ps(y, lanes(count));
  }
  static __m256i lanes(int64_t count) {
    __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), numbers);
  }
  static void store(float* y, F v, int64_t count) {
    if (count >= kLanes) {
      _mm256_storeu_ps(y, v);
    } else {
      _mm256_maskstore_ps(y, lanes(count), v);
    }
  }

  static F fma(F x, F y, F z) { return _mm256_fmadd_ps(x, y, z); }
  static F fma_in_order(F x, F y, F z) {
    z = _mm256_fmadd_ps(x, y, z);
    asm volatile("" : "+x"(z));  // otherwise broadcasts are hoisted and sums spilled
    return z;
  }
  static F mul(F x, float factor) { return _mm256_mul_ps(x, _mm256_set1_ps(factor)); }
  static F load_f32(const uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
  static F broadcast_f32(const uint8_t* p) { return _mm256_set1_ps(*reinterpret_cast<const float*>(p)); }
  static F load_f16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  template <int part>
  static F widen(__m256i pairs) {
    if (part == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  template <int part>
  static F load_bf16(const uint8_t* p) {
    return widen<part>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  template <int part>
  static F broadcast_bf16(const uint8_t* p) {
    return widen<part>(_mm256_set1_epi32(*reinterpret_cast<const int*>(p)));
  }
  static void widen_row(const uint8_t* x, int64_t steps, float* out) {
    int64_t s = 0;
    for (; s + 4 <= steps; s += 4) {
      const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + s * 4));
      _mm256_storeu_ps(out + s * 2, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(pairs), 16)));
    }
    for (; s < steps; ++s) {
      const auto pair = *reinterpret_cast<const uint32_t*>(x + s * 4);
      out[s * 2] = std::bit_cast<float>(pair << 16);
      out[s * 2 + 1] = std::bit_cast<float>(pair & 0xffff0000u);
    }
  }
  static void load_f8(const uint8_t* p, F& even, F& odd) {
    __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 8);
    __m256i magnitude = _mm256_srli_epi16(_mm256_and_si256(high, _mm256_set1_epi16(0x7f00)), 1);
    __m256i half = _mm256_or_si256(magnitude, _mm256_and_si256(high, _mm256_set1_epi16(-0x8000)));
    even = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
    odd = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
  }
};

}  // namespace

void add_matmul_float_avx2(KernelTable& table) {
  add_float_kernel<F32Weights<Lanes8>>(table);
  add_float_kernel<F16Weights<Lanes8>>(table);
  add_float_kernel<Bf16Weights<Lanes8>>(table);
  add_f8_kernel<F8Weights<Lanes8>>(table);
}

}  // namespace millrace
#endif
