// Selective scan for AVX2. The shared source is compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx2.h"
#include "kernels/vector/simd_math.h"
#include "kernels/vector/selective_scan_kernel.h"
// clang-format on

namespace millrace {

void add_selective_scan_avx2(KernelTable& table) {
  table.causal_conv = causal_conv;
  table.selective_scan = selective_scan;
}

}  // namespace millrace
#endif
