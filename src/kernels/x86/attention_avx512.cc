// Attention for AVX-512 in f32. The shared sources are compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx512.h"
#include "kernels/vector/simd_math.h"
#include "kernels/vector/row_decode.h"
#include "kernels/vector/attention_kernel.h"
// clang-format on

namespace millrace {

void add_attention_avx512(KernelTable& table) {
  set_attention_named(table, KvF32::kName, attend<KvF32>);
  set_attention_named(table, KvF16::kName, attend<KvF16>);
  set_attention_named(table, KvBf16::kName, attend<KvBf16>);
  set_attention_named(table, KvQ8::kName, attend<KvQ8>);
  set_mixed_attention_named(table, KvQ8::kName, KvF16::kName, attend<KvQ8, KvF16>);
  set_mixed_attention_named(table, KvF16::kName, KvQ8::kName, attend<KvF16, KvQ8>);
  table.any_attention.run = attend<KvAny>;
  table.attention_join = join_partial;
  table.attention_merge = merge_partials;
}

}  // namespace millrace
#endif
