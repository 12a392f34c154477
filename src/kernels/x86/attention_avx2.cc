// Attention for AVX2. The shared sources are compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx2.h"
#include "kernels/x86/level_tables_avx2.h"
#include "kernels/vector/simd_math.h"
#include "kernels/x86/nibble_blocks_avx2.h"
#include "kernels/vector/row_decode.h"
#include "kernels/vector/affine_levels.h"
#include "kernels/vector/level_tiles_kernel.h"
#include "kernels/x86/turned_keys_avx2.h"
#include "kernels/vector/rope_kernel.h"
#include "kernels/vector/turned_tiles_kernel.h"
#include "kernels/vector/attention_kernel.h"
#include "kernels/vector/attention_entries.h"
// clang-format on

namespace millrace {

void add_attention_avx2(KernelTable& table) { add_attention(table); }

}  // namespace millrace
#endif
