// Quantized matmul for AVX2 with AVX-VNNI.
#if defined(__x86_64__)
#include "kernels/families.h"
#include "kernels/vector/matmul_codewords.h"
#include "kernels/x86/matmul_vnni_avx2.h"

namespace millrace {

void add_matmul_quant_avxvnni(KernelTable& table) {
  add_quant_kernels<VectorVnni256>(table);
  set_table16(table, run_table16<VectorVnni256>);
  set_codewords(table, run_codewords<VectorVnni256>);
}

}  // namespace millrace
#endif
