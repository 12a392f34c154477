// Which version of the scan of matrices a machine takes.
#include "kernels/matrix_scan.h"

namespace millrace {

MatrixScan matrix_scan_kernel(Isa isa) {
#if defined(__x86_64__)
  if (isa.has(Feature::avx512)) return matrix_scan_avx512();
  if (isa.has(Feature::avx2)) return matrix_scan_avx2();
#elif defined(__aarch64__)
  if (isa.has(Feature::neon)) return matrix_scan_neon();
#endif
  return matrix_scan_ref();
}

}  // namespace millrace
