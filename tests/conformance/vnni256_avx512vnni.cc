// The 256-bit products with VNNI in the encoding of AVX-512 VL, which more machines have than AVX-VNNI: the arithmetic
// of matmul_quant_avxvnni.cc where that cannot run.
#if defined(__x86_64__)
#include "conformance/vnni256.h"
#include "kernels/vector/matmul_codewords.h"
#include "kernels/x86/matmul_vnni_avx2.h"

namespace millrace::testing {

void add_vnni256(KernelTable& table) {
  add_quant_kernels<VectorVnni256>(table);
  set_table16(table, run_table16<VectorVnni256>);
  set_codewords(table, run_codewords<VectorVnni256>);
}

}  // namespace millrace::testing
#endif
