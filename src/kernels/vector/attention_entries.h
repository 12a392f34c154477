// Adds the entries for attention in f32 to a KernelTable. Include after attention_kernel.h.
#pragma once

namespace millrace {
namespace {

// Adds the kernels for keys in one format, with values in each format.
template <typename Keys, typename... Values>
void add_attention_of_keys(KernelTable& table) {
  const auto add = [&]<typename V>() {
    if constexpr (std::is_same_v<Keys, V>)
      set_attention_named(table, Keys::kName, attend<Keys>);
    else
      set_mixed_attention_named(table, Keys::kName, V::kName, attend<Keys, V>);
  };
  (add.template operator()<Values>(), ...);
}

template <typename... Formats>
void add_attention_of(KernelTable& table) {
  (add_attention_of_keys<Formats, Formats...>(table), ...);
}

inline void add_attention(KernelTable& table) {
  add_attention_of<KvF32, KvF16, KvBf16, KvQ8, KvQ40, KvQ41, KvQ50, KvF8>(table);
  table.any_attention.run = attend<KvAny>;
  table.attend_tiles = attend<KvTiles>;
  table.attention_join = join_partial;
  table.attention_merge = merge_partials;
}

}  // namespace
}  // namespace millrace
