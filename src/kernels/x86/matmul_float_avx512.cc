// Float matmul for AVX-512: F32, F16 and BF16 by fused multiply-add.
#if defined(__x86_64__)
#include "kernels/families.h"
#include "kernels/x86/matmul_lanes_avx512.h"

namespace millrace {
namespace {

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

// Pairs are widened one column at a time; each sum gets its columns in ascending order, as with AVX2.
struct Bf16Wide : Lanes16 {
  using V = __m512;
  static constexpr const char* kFormat = "bf16";
  static constexpr Activation kActivation = Activation::bf16;
  static constexpr int kStep = 2;
  static constexpr int kColumnParts = 2;
  static constexpr int kVectorBytes = 64;
  template <int part>
  static V widen(__m512i pairs) {
    if (part == 0) return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  template <int part>
  static V load(const uint8_t* p) {
    return widen<part>(_mm512_loadu_si512(p));
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    return widen<part>(_mm512_set1_epi32(*reinterpret_cast<const int*>(p)));
  }
  // A value of widen_row(), which widens `steps` pairs of columns of a token.
  static V broadcast_wide(const uint8_t* p) { return _mm512_set1_ps(*reinterpret_cast<const float*>(p)); }
  static void widen_row(const uint8_t* x, int64_t steps, float* out) {
    for (int64_t s = 0; s < steps; s += 8) {
      const auto lanes = static_cast<__mmask16>(steps - s >= 8 ? 0xffff : (1 << 2 * (steps - s)) - 1);
      const __m512i values = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, x + s * 4));
      _mm512_storeu_ps(out + s * 2, _mm512_castsi512_ps(_mm512_slli_epi32(values, 16)));
    }
  }
  static F multiply_add(V w, V x, F acc) {
    acc = _mm512_fmadd_ps(w, x, acc);
    asm volatile("" : "+v"(acc));  // fixes the order, otherwise broadcasts are hoisted and sums spilled
    return acc;
  }
};

}  // namespace

void add_matmul_float_avx512(KernelTable& table) {
  add_float_kernel<F32Avx512>(table);
  add_float_kernel<F16Avx512>(table);
  add_float_kernel<Bf16Wide>(table);
}

}  // namespace millrace
#endif
