// Norms for AVX2. The shared source is compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx2.h"
#include "kernels/vector/norm_kernel.h"
// clang-format on

namespace millrace {

void add_norm_avx2(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
}

}  // namespace millrace
#endif
