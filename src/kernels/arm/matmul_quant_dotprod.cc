// Quantized matmul for Arm with dot products of bytes (FEAT_DotProd).
#include "kernels/arm/matmul_vector_dotprod.h"
#include "kernels/families.h"
#include "kernels/vector/matmul_codewords.h"

namespace millrace {

void add_matmul_quant_dotprod(KernelTable& table) {
  add_quant_kernels<VectorDotprod>(table);
  set_table16(table, run_table16<VectorDotprod>);
  set_codewords(table, run_codewords<VectorDotprod>);
}

}  // namespace millrace
