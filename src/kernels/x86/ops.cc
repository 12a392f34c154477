// Registers the x86 levels of everything except matmul and attention. Compiled for the baseline.
#include "kernels/ops.h"

#if defined(__x86_64__)
namespace millrace {

void add_ops_avx2(KernelTable& table) {
  add_norm_avx2(table);
  add_rope_avx2(table);
  add_softmax_avx2(table);
  add_exp_sum_avx2(table);
  add_activation_functions_avx2(table);
  add_elementwise_avx2(table);
  add_row_codec_avx2(table);
  add_selective_scan_avx2(table);
  add_affine_rows_avx2(table);
}

void add_ops_avx512(KernelTable& table) {
  add_norm_avx512(table);
  add_rope_avx512(table);
  add_softmax_avx512(table);
  add_exp_sum_avx512(table);
  add_select_avx512(table);
  add_activation_functions_avx512(table);
  add_elementwise_avx512(table);
  add_row_codec_avx512(table);
  add_selective_scan_avx512(table);
  add_affine_rows_avx512(table);
}

}  // namespace millrace
#endif
