// Attention for AMX with BF16: what attention_avx512bf16.cc multiplies in vectors, in tiles (attention_amx.h).
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx512.h"
#include "kernels/x86/level_tables_avx512.h"
#include "kernels/vector/simd_math.h"
#include "kernels/vector/row_decode.h"
#include "kernels/vector/affine_levels.h"
#include "kernels/vector/level_tiles_kernel.h"
#include "kernels/vector/rope_kernel.h"
#include "kernels/vector/turned_tiles_kernel.h"
#include "kernels/vector/attention_kernel.h"
#include "kernels/x86/attention_ahead.h"
#include "kernels/x86/attention_bf16_tiles.h"
#include "kernels/x86/attention_bf16_weights.h"
#include "kernels/x86/bf16_products.h"
#include "kernels/x86/attention_bf16_products.h"
#include "kernels/x86/attention_bf16.h"
#include "kernels/x86/tiles.h"
#include "kernels/x86/attention_amx.h"
// clang-format on

namespace millrace {

void add_attention_amxbf16(KernelTable& table) {
  set_attention_named(table, KvF16::kName, attend_amx<ReadF16, KvF16>, kBf16MaxHeadDim);
  set_attention_named(table, KvBf16::kName, attend_amx<ReadBf16, KvBf16>, kBf16MaxHeadDim);
  set_attention_named(table, KvQ8::kName, attend_amx<ReadQ8, KvQ8>, kBf16MaxHeadDim);
  set_mixed_attention_named(table, KvQ8::kName, KvF16::kName, attend_amx<ReadQ8, KvQ8, ReadF16, KvF16>,
                            kBf16MaxHeadDim);
  set_mixed_attention_named(table, KvF16::kName, KvQ8::kName, attend_amx<ReadF16, KvF16, ReadQ8, KvQ8>,
                            kBf16MaxHeadDim);
}

}  // namespace millrace
#endif
