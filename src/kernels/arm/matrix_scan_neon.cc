// Scan of states that are matrices, for NEON. The shared source is compiled with the vector type included first.
// clang-format off
#include "kernels/arm/simd_neon.h"
#include "kernels/vector/matrix_scan_kernel.h"
// clang-format on

namespace millrace {

MatrixScan matrix_scan_neon() { return scan_matrices; }

}  // namespace millrace
