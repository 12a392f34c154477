// Levels under scales and zeros for AVX-512. The shared source is compiled with the vector type included first; it
// serves rows that are not whole vectors of 32 columns.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx512.h"
#include "kernels/x86/level_tables_avx512.h"
#include "kernels/vector/affine_levels.h"
#include "kernels/vector/affine_rows_kernel.h"
#include "kernels/x86/affine_rows_wide.h"
// clang-format on

namespace millrace {

void add_affine_rows_avx512(KernelTable& table) { table.decode_affine = decode_affine_wide; }

}  // namespace millrace
#endif
