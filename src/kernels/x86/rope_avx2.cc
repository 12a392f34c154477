// RoPE for AVX2. The shared source is compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx2.h"
#include "kernels/vector/rope_kernel.h"
#include "kernels/vector/rotate_rows_kernel.h"
// clang-format on

namespace millrace {

void add_rope_avx2(KernelTable& table) {
  table.rope = rope;
  table.rotate_rows = rotate_rows;
}

}  // namespace millrace
#endif
