// Attention for AVX-512. The shared sources are compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx512.h"
#include "kernels/x86/simd_math.h"
#include "kernels/x86/row_decode.h"
#include "kernels/x86/attention_kernel.h"
#include "kernels/x86/attention_ahead.h"
#include "kernels/x86/attention_bf16_tiles.h"
#include "kernels/x86/attention_bf16_weights.h"
#include "kernels/x86/attention_bf16.h"
// clang-format on

namespace millrace {

void add_attention_avx512(KernelTable& table) {
  set_attention_named(table, KvF32::kName, attend<KvF32>);
  set_attention_named(table, KvF16::kName, attend_bf16<ReadF16, KvF16>, kBf16MaxHeadDim);
  set_attention_named(table, KvBf16::kName, attend_bf16<ReadBf16, KvBf16>, kBf16MaxHeadDim);
  set_attention_named(table, KvQ8::kName, attend_bf16<ReadQ8, KvQ8>, kBf16MaxHeadDim);
  table.attention_join = join_partial;
  table.attention_merge = merge_partials;
}

}  // namespace millrace
#endif
