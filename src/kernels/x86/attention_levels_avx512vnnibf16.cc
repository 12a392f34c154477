// Attention over tiles of levels for AVX-512 with VNNI and BF16: levels are multiplied as bytes, or as words where keys
// are rotated on the way.
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
#include "kernels/x86/attention_level_units.h"
#include "kernels/x86/attention_level_partition.h"
#include "kernels/x86/attention_byte_level_units.h"
#include "kernels/x86/attention_byte_level_codes.h"
#include "kernels/x86/attention_byte_level_keys.h"
#include "kernels/x86/attention_byte_level_values.h"
#include "kernels/x86/attention_byte_levels.h"
#include "kernels/x86/attention_word_level_units.h"
#include "kernels/x86/attention_word_level_keys.h"
#include "kernels/x86/attention_word_level_values.h"
#include "kernels/x86/attention_word_level_excess.h"
#include "kernels/x86/attention_word_levels.h"
// clang-format on

namespace millrace {
namespace {

void attend_turned_levels(const AttentionArgs& a) {
  if (!fits_words(a)) return attend<KvTiles>(a);
  if (a.tiles->bits == 2) return attend_word_levels<2>(a);
  a.tiles->bits == 3 ? attend_word_levels<3>(a) : attend_word_levels<4>(a);
}

void attend_levels(const AttentionArgs& a) noexcept {
  if (a.tiles->turns) return attend_turned_levels(a);
  const bool codes = a.tiles->codes;
  if (a.tiles->bits == 3) return attend_byte_levels<CodedLevels<3>>(a);
  if (a.tiles->bits == 2) return codes ? attend_byte_levels<CodedLevels<2>>(a) : attend_byte_levels<PlainLevels<2>>(a);
  codes ? attend_byte_levels<CodedLevels<4>>(a) : attend_byte_levels<PlainLevels<4>>(a);
}

}  // namespace

void add_attention_levels_avx512vnnibf16(KernelTable& table) { table.attend_tiles = attend_levels; }

}  // namespace millrace
#endif
