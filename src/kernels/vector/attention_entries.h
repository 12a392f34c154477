// The entries of a KernelTable for attention in f32. Include after attention_kernel.h.
#pragma once

namespace millrace {
namespace {

inline void add_attention(KernelTable& table) {
  set_attention_named(table, KvF32::kName, attend<KvF32>);
  set_attention_named(table, KvF16::kName, attend<KvF16>);
  set_attention_named(table, KvBf16::kName, attend<KvBf16>);
  set_attention_named(table, KvQ8::kName, attend<KvQ8>);
  set_attention_named(table, KvQ40::kName, attend<KvQ40>);
  set_attention_named(table, KvQ41::kName, attend<KvQ41>);
  set_attention_named(table, KvQ50::kName, attend<KvQ50>);
  set_attention_named(table, KvF8::kName, attend<KvF8>);
  set_mixed_attention_named(table, KvQ8::kName, KvF16::kName, attend<KvQ8, KvF16>);
  set_mixed_attention_named(table, KvF16::kName, KvQ8::kName, attend<KvF16, KvQ8>);
  table.any_attention.run = attend<KvAny>;
  table.attend_tiles = attend<KvTiles>;
  table.attention_join = join_partial;
  table.attention_merge = merge_partials;
}

}  // namespace
}  // namespace millrace
