// Attention for NEON. The shared sources are compiled with the vector type included first.
// clang-format off
#include "kernels/arm/simd_neon.h"
#include "kernels/vector/no_level_tables.h"
#include "kernels/vector/simd_math.h"
#include "kernels/vector/row_decode.h"
#include "kernels/vector/affine_levels.h"
#include "kernels/vector/level_tiles_kernel.h"
#include "kernels/vector/rope_kernel.h"
#include "kernels/vector/turned_tiles_kernel.h"
#include "kernels/vector/attention_kernel.h"
#include "kernels/vector/attention_entries.h"
// clang-format on

namespace millrace {

void add_attention_neon(KernelTable& table) { add_attention(table); }

}  // namespace millrace
