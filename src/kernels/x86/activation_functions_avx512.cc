// Activation functions for AVX-512. The shared source is compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx512.h"
#include "kernels/vector/simd_math.h"
#include "kernels/vector/activation_functions_kernel.h"
// clang-format on

namespace millrace {

void add_activation_functions_avx512(KernelTable& table) {
  table.silu_mul = gated<Silu>;
  table.gelu_tanh_mul = gated<GeluTanh>;
  table.gelu_erf_mul = gated<GeluErf>;
  table.gelu_tanh = in_place<GeluTanh>;
  table.gelu_erf = in_place<GeluErf>;
  table.relu = in_place<Relu>;
  table.softcap = softcap;
}

}  // namespace millrace
#endif
