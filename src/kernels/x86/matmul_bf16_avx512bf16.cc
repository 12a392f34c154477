// BF16 matmul for AVX-512 with BF16: vdpbf16ps in pairs of columns.
#if defined(__x86_64__)
#include "kernels/families.h"
#include "kernels/x86/matmul_lanes_avx512.h"

namespace millrace {
namespace {

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

}  // namespace

void add_matmul_bf16_avx512bf16(KernelTable& table) { add_float_kernel<Bf16Avx512>(table); }

}  // namespace millrace
#endif
