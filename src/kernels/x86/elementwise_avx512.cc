// Elementwise arithmetic for AVX-512. The shared source is compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx512.h"
#include "kernels/vector/elementwise_kernel.h"
// clang-format on

namespace millrace {

void add_elementwise_avx512(KernelTable& table) {
  table.add = add;
  table.add_scaled = add_scaled;
  table.scale = scale;
}

}  // namespace millrace
#endif
