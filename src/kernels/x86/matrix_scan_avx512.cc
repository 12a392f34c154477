// Scan of states that are matrices, for AVX-512. The shared source is compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx512.h"
#include "kernels/vector/matrix_scan_kernel.h"
// clang-format on

namespace millrace {

MatrixScan matrix_scan_avx512() { return scan_matrices; }

}  // namespace millrace
#endif
