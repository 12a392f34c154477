// Attention over rows of levels for AVX-512 with VNNI and BF16: levels are multiplied as bytes.
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
#include "kernels/x86/attention_bf16.h"
#include "kernels/x86/attention_byte_row_formats.h"
#include "kernels/x86/attention_byte_row_planes.h"
#include "kernels/x86/attention_byte_row_keys.h"
#include "kernels/x86/attention_byte_row_values.h"
#include "kernels/x86/attention_byte_rows.h"
// clang-format on

namespace millrace {
void add_attention_rows_avx512vnnibf16(KernelTable& table) {
  set_attention_named(table, KvQ40::kName, attend_byte_rows<NibbleRows<KvQ40>, KvQ40>, kBf16MaxHeadDim);
  set_attention_named(table, KvQ41::kName, attend_byte_rows<NibbleRows<KvQ41>, KvQ41>, kBf16MaxHeadDim);
  set_attention_named(table, KvQ50::kName, attend_byte_rows<NibbleRows<KvQ50>, KvQ50>, kBf16MaxHeadDim);
  set_attention_named(table, KvQ8::kName, attend_byte_rows<ByteRows, KvQ8>, kBf16MaxHeadDim);
}

}  // namespace millrace
#endif
