// Softmax for AVX2. The shared sources are compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx2.h"
#include "kernels/vector/simd_math.h"
#include "kernels/vector/softmax_kernel.h"
// clang-format on

namespace millrace {

void add_softmax_avx2(KernelTable& table) { table.softmax = softmax; }

}  // namespace millrace
#endif
