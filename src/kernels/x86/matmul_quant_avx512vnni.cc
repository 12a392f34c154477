// Quantized matmul for AVX-512 with VNNI: the 32 rows of a panel and 5 tokens together.
#if defined(__x86_64__)
#include <utility>

#include "kernels/families.h"
#include "kernels/vector/matmul_codewords.h"
#include "kernels/x86/matmul_vector_avx512vnni.h"

namespace millrace {

void add_matmul_quant_avx512vnni(KernelTable& table) {
  add_quant_kernels<VectorAvx512>(table);
  set_table16(table, run_table16<VectorAvx512>);
  set_codewords(table, run_codewords<VectorAvx512>);
}

QuantRun table16_run_avx512vnni() { return run_table16<VectorAvx512>; }

QuantRun codewords_run_avx512vnni() { return run_codewords<VectorAvx512>; }

QuantRun quant_run_avx512vnni(int source) {
  return []<int... N>(int index, std::integer_sequence<int, N...>) {
    constexpr QuantRun kRuns[] = {QuantKernel<VectorAvx512, N>::run...};
    return kRuns[index];
  }
  (source, std::make_integer_sequence<int, kQuantSourceCount>{});
}

}  // namespace millrace
#endif
