// Elementwise arithmetic for AVX2. The shared source is compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx2.h"
#include "kernels/vector/elementwise_kernel.h"
// clang-format on

namespace millrace {

void add_elementwise_avx2(KernelTable& table) {
  table.add = add;
  table.add_scaled = add_scaled;
  table.scale = scale;
}

}  // namespace millrace
#endif
