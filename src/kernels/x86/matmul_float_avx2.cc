// Float matmul for AVX2 and FMA: 8 rows a vector; BF16 pairs are widened one column at a time.
#if defined(__x86_64__)
#include <immintrin.h>

#include <bit>

#include "kernels/families.h"
#include "kernels/vector/matmul_f8.h"
#include "kernels/vector/matmul_float.h"

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
  static F multiply_scale(F scale, F part, F acc) { return _mm256_fmadd_ps(scale, part, acc); }
  static F load_scales(const uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
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
};

struct F32Avx2 : Lanes8 {
  using V = __m256;
  static constexpr const char* kFormat = "f32";
  static constexpr Activation kActivation = Activation::f32;
  static constexpr int kStep = 1;
  static constexpr int kVectorBytes = 32;
  template <int part>
  static V load(const uint8_t* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    return _mm256_set1_ps(*reinterpret_cast<const float*>(p));
  }
  static F multiply_add(V w, V x, F acc) { return _mm256_fmadd_ps(w, x, acc); }
};

struct F16Avx2 : F32Avx2 {
  static constexpr const char* kFormat = "f16";
  static constexpr int kVectorBytes = 16;
  template <int part>
  static V load(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

// Pairs are widened one column at a time, because two columns per vector would not fit in registers with 12 sums.
struct Bf16Avx2 : Lanes8 {
  using V = __m256;
  static constexpr const char* kFormat = "bf16";
  static constexpr Activation kActivation = Activation::bf16;
  static constexpr int kStep = 2;
  static constexpr int kColumnParts = 2;
  static constexpr int kVectorBytes = 32;
  template <int part>
  static V widen(__m256i pairs) {
    if (part == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  template <int part>
  static V load(const uint8_t* p) {
    return widen<part>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    return widen<part>(_mm256_set1_epi32(*reinterpret_cast<const int*>(p)));
  }
  // A value of widen_row(), which widens `steps` pairs of columns of a token.
  static V broadcast_wide(const uint8_t* p) { return _mm256_set1_ps(*reinterpret_cast<const float*>(p)); }
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
  static F multiply_add(V w, V x, F acc) {
    acc = _mm256_fmadd_ps(w, x, acc);
    asm volatile("" : "+x"(acc));  // fixes the order, otherwise broadcasts are hoisted and sums spilled
    return acc;
  }
};

// Two columns of 8 rows, or of one token in every lane.
struct Pair {
  __m256 even, odd;
};

// Converts E4M3 codes to f32 via f16: shifted into place an E4M3 is the f16 of 2^-8 times its value, including
// subnormals. The fold's scale restores the factor exactly. NaN codes are already in the scale (pack_f8_panels).
struct F8Avx2 : Lanes8 {
  using V = Pair;
  static constexpr int kOnePanels = 2;  // with one token, enough sums in flight to hide the latency of the adds
  static constexpr int kTile = 8;
  static constexpr int kPanels = 1;
  static constexpr const char* kLayout = "panels8";
  static V broadcast(const uint8_t* p) {
    auto* x = reinterpret_cast<const float*>(p);
    return {_mm256_set1_ps(x[0]), _mm256_set1_ps(x[1])};
  }
  static F multiply_add(V w, V x, F acc) { return _mm256_fmadd_ps(w.odd, x.odd, _mm256_fmadd_ps(w.even, x.even, acc)); }
  static F load_scales(const uint8_t* p) { return _mm256_mul_ps(Lanes8::load_scales(p), _mm256_set1_ps(256.0f)); }
  static void load_quad(const uint8_t* p, V (&out)[2]) {
    for (int i = 0; i < 2; ++i) {
      __m256i high =
          _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i))), 8);
      __m256i magnitude = _mm256_srli_epi16(_mm256_and_si256(high, _mm256_set1_epi16(0x7f00)), 1);
      __m256i half = _mm256_or_si256(magnitude, _mm256_and_si256(high, _mm256_set1_epi16(-0x8000)));
      out[i] = {_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
    }
  }
};

}  // namespace

void add_matmul_float_avx2(KernelTable& table) {
  add_float_kernel<F32Avx2>(table);
  add_float_kernel<F16Avx2>(table);
  add_float_kernel<Bf16Avx2>(table);
  add_f8_kernel<F8Avx2>(table);
}

}  // namespace millrace
#endif
