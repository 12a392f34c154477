// exp_sum for AVX-512.
#if defined(__x86_64__)
#include "kernels/vector/exp_sum_kernel.h"

namespace millrace {

void add_exp_sum_avx512(KernelTable& table) {
  table.exp_sum = exp_sum;
  table.exp_sum_coarse = exp_sum_coarse;
}

}  // namespace millrace
#endif
