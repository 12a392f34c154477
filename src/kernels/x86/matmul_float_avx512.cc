// Float matmul for AVX-512: F32, F16 and BF16 by fused multiply-add.
#if defined(__x86_64__)
#include "kernels/families.h"
#include "kernels/vector/matmul_float_weights.h"
#include "kernels/x86/matmul_lanes_avx512.h"

namespace millrace {
namespace {

struct FloatLanes16 : Lanes16 {
  static F fma(F x, F y, F z) { return _mm512_fmadd_ps(x, y, z); }
  static F fma_in_order(F x, F y, F z) {
    z = _mm512_fmadd_ps(x, y, z);
    asm volatile("" : "+v"(z));  // otherwise broadcasts are hoisted and sums spilled
    return z;
  }
  static F load_f32(const uint8_t* p) { return _mm512_loadu_ps(p); }
  static F broadcast_f32(const uint8_t* p) { return _mm512_set1_ps(*reinterpret_cast<const float*>(p)); }
  static F load_f16(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  template <int part>
  static F widen(__m512i pairs) {
    if (part == 0) return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  template <int part>
  static F load_bf16(const uint8_t* p) {
    return widen<part>(_mm512_loadu_si512(p));
  }
  template <int part>
  static F broadcast_bf16(const uint8_t* p) {
    return widen<part>(_mm512_set1_epi32(*reinterpret_cast<const int*>(p)));
  }
  static void widen_row(const uint8_t* x, int64_t steps, float* out) {
    for (int64_t s = 0; s < steps; s += 8) {
      const auto lanes = static_cast<__mmask16>(steps - s >= 8 ? 0xffff : (1 << 2 * (steps - s)) - 1);
      const __m512i values = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, x + s * 4));
      _mm512_storeu_ps(out + s * 2, _mm512_castsi512_ps(_mm512_slli_epi32(values, 16)));
    }
  }
};

struct F16Avx512 : F16Weights<FloatLanes16> {
  // Conversions hinder the hardware prefetcher: relative to plain reads from memory, 0.76 (one core) and 0.89 (two
  // cores) without software prefetch, 0.91 and 0.94 with it.
  static constexpr int kOnePanels = 2;
  static constexpr bool kAsksForOne = true;
};

}  // namespace

void add_matmul_float_avx512(KernelTable& table) {
  add_float_kernel<F32Weights<FloatLanes16>>(table);
  add_float_kernel<F16Avx512>(table);
  add_float_kernel<Bf16Weights<FloatLanes16>>(table);
}

}  // namespace millrace
#endif
