// The reference level of everything except matmul (portable C++, sums in double, not optimized), and registration by
// format name.
#include "kernels/ops.h"

namespace millrace {

void set_attention_named(KernelTable& table, const char* format, AttentionFunction run, int64_t bf16_head_dim) {
  if (const Format* found = find_format(format)) set_attention(table, {found, run, bf16_head_dim});
}

void set_mixed_attention_named(KernelTable& table, const char* keys, const char* values, AttentionFunction run,
                               int64_t bf16_head_dim) {
  set_mixed_attention(table, {find_format(keys), run, bf16_head_dim, find_format(values)});
}

void set_codec_named(KernelTable& table, const char* format, EncodeFunction encode, DecodeFunction decode) {
  if (const Format* found = find_format(format)) set_codec(table, {found, encode ? encode : found->encode, decode});
}

void add_ops_ref(KernelTable& table) {
  add_attention_ref(table);
  add_norm_ref(table);
  add_rope_ref(table);
  add_softmax_ref(table);
  add_exp_sum_ref(table);
  add_select_ref(table);
  add_activation_functions_ref(table);
  add_elementwise_ref(table);
  add_row_codec_ref(table);
  add_selective_scan_ref(table);
  add_affine_rows_ref(table);
}

}  // namespace millrace
