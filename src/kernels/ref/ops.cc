// The reference level of everything but matmul: portable C++, sums in double, no thought of speed.
#include "kernels/ops.h"

namespace millrace {

void add_ops_ref(KernelTable& table) {
  add_attention_ref(table);
  add_norm_ref(table);
  add_rope_ref(table);
  add_softmax_ref(table);
  add_activation_functions_ref(table);
  add_elementwise_ref(table);
  add_row_codec_ref(table);
}

}  // namespace millrace
