// Float matmul for AVX-512: 16 rows a vector; F32 and F16 by fused multiply-add, BF16 by vdpbf16ps in pairs of columns.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "kernels/families.h"
#include "kernels/x86/matmul_f8.h"
#include "kernels/x86/matmul_float.h"

namespace millrace {
namespace {

struct Lanes16 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kTile = 12;  // tokens: 2 x 12 accumulators, 2 weights and a broadcast fill 27 registers
  static constexpr int kPanels = 2;
  static constexpr int kColumnParts = 1;  // number of parts in which a step's columns are multiplied
  // Panels that one and two tokens process together: for two tokens, two are faster in cache and slower from memory;
  // figures in docs/performance.md. Whether one token prefetches: the hardware prefetcher does better.
  static constexpr int kOnePanels = 4;
  static constexpr int kTwoPanels = 1;
  static constexpr bool kAsksForOne = false;
  static constexpr const char* kLayout = "panels32";
  static F zero() { return _mm512_setzero_ps(); }
  static F multiply_scale(F scale, F part, F acc) { return _mm512_fmadd_ps(scale, part, acc); }
  static F load_scales(const uint8_t* p) { return _mm512_loadu_ps(p); }
  // The sums of the previous columns; count may be 0 or less.
  static F load_sum(const float* y, int64_t count) {
    return count >= kLanes ? _mm512_loadu_ps(y) : _mm512_maskz_loadu_ps(lanes(count), y);
  }
  static __mmask16 lanes(int64_t count) { return static_cast<__mmask16>(count <= 0 ? 0 : (1u << count) - 1); }
  static void store(float* y, F v, int64_t count) {
    if (count >= kLanes) {
      _mm512_storeu_ps(y, v);
    } else {
      _mm512_mask_storeu_ps(y, lanes(count), v);
    }
  }
};

struct F32Avx512 : Lanes16 {
  using V = __m512;
  static constexpr const char* kFormat = "f32";
  static constexpr Activation kActivation = Activation::f32;
  static constexpr int kStep = 1;
  static constexpr int kVectorBytes = 64;
  template <int part>
  static V load(const uint8_t* p) {
    return _mm512_loadu_ps(p);
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(p));
  }
  static F multiply_add(V w, V x, F acc) { return _mm512_fmadd_ps(w, x, acc); }
};

struct F16Avx512 : F32Avx512 {
  static constexpr const char* kFormat = "f16";
  // Conversions hinder the hardware prefetcher: relative to plain reads from memory, 0.76 (one core) and 0.89 (two
  // cores) without software prefetch, 0.91 and 0.94 with it.
  static constexpr int kOnePanels = 2;
  static constexpr bool kAsksForOne = true;
  static constexpr int kVectorBytes = 32;
  template <int part>
  static V load(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

struct Bf16Avx512 : Lanes16 {
  using V = __m512i;
  static constexpr const char* kFormat = "bf16";
  static constexpr Activation kActivation = Activation::bf16;
  static constexpr int kStep = 2;
  static constexpr int kVectorBytes = 64;
  template <int part>
  static V load(const uint8_t* p) {
    return _mm512_loadu_si512(p);
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    return _mm512_set1_epi32(*reinterpret_cast<const int*>(p));
  }
  static F multiply_add(V w, V x, F acc) { return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x); }
};

// The bf16 of each of the 128 E4M3 magnitudes, as low and high bytes: the look-up tables for vpermi2b. 127 is NaN.
struct E4m3Bytes {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};
constexpr E4m3Bytes make_e4m3_bytes() {
  E4m3Bytes bytes = {};
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> 3, mantissa = code & 7;
    int bits = (exponent + 120) << 7 | mantissa << 4;
    if (exponent == 0) {  // mantissa * 2^-9
      int top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
      bits = mantissa == 0 ? 0 : (127 - 9 + top) << 7 | (((mantissa << 7) >> top) & 0x7f);
    }
    if (code == 127) bits = 0x7fc0;
    bytes.low[code] = static_cast<uint8_t>(bits);
    bytes.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return bytes;
}
constexpr E4m3Bytes kE4m3Bytes = make_e4m3_bytes();

// Two columns of 16 rows, or of one token in every lane.
struct Pair {
  __m512 even, odd;
};

struct F8Avx512 : Lanes16 {
  using V = Pair;
  static constexpr int kOnePanels = 4;  // with one token, enough sums in flight to hide the latency of the adds
  static constexpr int kTile = 6;
  static constexpr const char* kLayout = "panels16";
  static void load_quad(const uint8_t* p, V (&out)[2]) {
    __m512i codes = _mm512_loadu_si512(p);
    __m512i low =
        _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bytes.low), codes, _mm512_load_si512(kE4m3Bytes.low + 64));
    __m512i high =
        _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bytes.high), codes, _mm512_load_si512(kE4m3Bytes.high + 64));
    high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8);  // high | (codes & sign)
    out[0] = widen(_mm512_unpacklo_epi8(low, high));
    out[1] = widen(_mm512_unpackhi_epi8(low, high));
  }
  static V widen(__m512i pairs) {  // bf16 pairs to f32
    __m512i odd = _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), _mm512_castsi512_ps(odd)};
  }
  static V broadcast(const uint8_t* p) {
    auto* x = reinterpret_cast<const float*>(p);
    return {_mm512_set1_ps(x[0]), _mm512_set1_ps(x[1])};
  }
  static F multiply_add(V w, V x, F acc) { return _mm512_fmadd_ps(w.odd, x.odd, _mm512_fmadd_ps(w.even, x.even, acc)); }
};

}  // namespace

void add_matmul_float_avx512(KernelTable& table) {
  add_float_kernel<F32Avx512>(table);
  add_float_kernel<F16Avx512>(table);
  add_float_kernel<Bf16Avx512>(table);
  add_f8_kernel<F8Avx512>(table);
}

}  // namespace millrace
#endif
