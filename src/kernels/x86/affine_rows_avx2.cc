// Levels under scales and zeros for AVX2. The shared source is compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx2.h"
#include "kernels/x86/level_tables_avx2.h"
#include "kernels/vector/affine_levels.h"
#include "kernels/vector/affine_rows_kernel.h"
// clang-format on

namespace millrace {

void add_affine_rows_avx2(KernelTable& table) { table.decode_affine = decode_affine; }

}  // namespace millrace
#endif
