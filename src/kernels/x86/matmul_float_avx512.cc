// Float matmul for AVX-512: 16 rows a vector; F32 and F16 by fused multiply-add, BF16 by vdpbf16ps in pairs of columns.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers set vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "kernels/families.h"
#include "kernels/x86/matmul_float.h"

namespace millrace {
namespace {

struct Lanes16 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kTile = 12;      // tokens: 2 x 12 accumulators, 2 weights and a broadcast fill 27 registers
  static constexpr int kPanels = 2;
  static constexpr int kOnePanels = 4;  // with one token, four sums in flight hide the latency of the adds
  static constexpr const char* kLayout = "panels16";
  static F zero() { return _mm512_setzero_ps(); }
  static void store(float* y, F v, int64_t count) {
    if (count >= kLanes) {
      _mm512_storeu_ps(y, v);
    } else {
      _mm512_mask_storeu_ps(y, static_cast<__mmask16>((1u << count) - 1), v);
    }
  }
};

struct F32Avx512 : Lanes16 {
  using V = __m512;
  static constexpr const char* kFormat = "f32";
  static constexpr Activation kActivation = Activation::f32;
  static constexpr int kStep = 1;
  static constexpr int kVectorBytes = 64;
  static V load(const uint8_t* p) { return _mm512_loadu_ps(p); }
  static V broadcast(const uint8_t* p) { return _mm512_set1_ps(*reinterpret_cast<const float*>(p)); }
  static F multiply_add(V w, V x, F acc) { return _mm512_fmadd_ps(w, x, acc); }
};

struct F16Avx512 : F32Avx512 {
  static constexpr const char* kFormat = "f16";
  static constexpr int kVectorBytes = 32;
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
  static V load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static V broadcast(const uint8_t* p) { return _mm512_set1_epi32(*reinterpret_cast<const int*>(p)); }
  static F multiply_add(V w, V x, F acc) { return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x); }
};

}  // namespace

void add_matmul_float_avx512(KernelTable& table) {
  add_float_kernel<F32Avx512>(table);
  add_float_kernel<F16Avx512>(table);
  add_float_kernel<Bf16Avx512>(table);
}

}  // namespace millrace
#endif
