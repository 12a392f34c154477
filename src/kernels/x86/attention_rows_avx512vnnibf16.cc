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
#include "kernels/x86/bf16_products.h"
#include "kernels/x86/attention_bf16_products.h"
#include "kernels/x86/attention_bf16.h"
#include "kernels/x86/attention_byte_row_formats.h"
#include "kernels/x86/attention_byte_row_planes.h"
#include "kernels/x86/attention_byte_row_keys.h"
#include "kernels/x86/attention_byte_row_values.h"
#include "kernels/x86/attention_byte_rows.h"
// clang-format on

namespace millrace {
namespace {

template <typename Kv, typename Row>
struct ByteFormat : Kv {
  using Keys = ByteKeys<Row>;
  using Values = ByteValues<Row>;
};

template <typename Kv, typename Read>
struct Bf16Format : Kv {
  using Keys = Bf16Keys<Read>;
  using Values = Bf16Values<Read>;
};

// Keys in one format, values in each of the others.
template <typename Key, typename... Others>
void set_pairs(KernelTable& table) {
  const auto set = [&]<typename Value>() {
    if constexpr (!std::is_same_v<Key, Value>)
      set_mixed_attention_named(table, Key::kName, Value::kName,
                                attend_pair<typename Key::Keys, typename Value::Values, KvAny>, kBf16MaxHeadDim);
  };
  (set.template operator()<Others>(), ...);
}

template <typename... All>
void set_all_pairs(KernelTable& table) {
  (set_pairs<All, All...>(table), ...);
}

template <typename Kv, typename Row>
void set_byte_rows(KernelTable& table) {
  set_attention_named(table, Kv::kName, attend_pair<ByteKeys<Row>, ByteValues<Row>, Kv>, kBf16MaxHeadDim);
}

}  // namespace

void add_attention_rows_avx512vnnibf16(KernelTable& table) {
  set_byte_rows<KvQ40, NibbleRows<KvQ40>>(table);
  set_byte_rows<KvQ41, NibbleRows<KvQ41>>(table);
  set_byte_rows<KvQ50, NibbleRows<KvQ50>>(table);
  set_byte_rows<KvQ8, ByteRows>(table);
  set_all_pairs<ByteFormat<KvQ40, NibbleRows<KvQ40>>, ByteFormat<KvQ41, NibbleRows<KvQ41>>,
                ByteFormat<KvQ50, NibbleRows<KvQ50>>, ByteFormat<KvQ8, ByteRows>, Bf16Format<KvF16, ReadF16>,
                Bf16Format<KvBf16, ReadBf16>, Bf16Format<KvF8, ReadF8>>(table);
}

}  // namespace millrace
#endif
