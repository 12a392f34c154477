// KvPool::compact(): the tokens that a stream keeps move to its first slots. KvPool::copy_slot(): one token moves, for
// example a kept token of a tree to the slot that it would have in a chain. Rows are whole tokens of one head, so this
// works in every format whose rows are independent.
#include <algorithm>
#include <cstring>

#include "kv/pool.h"

namespace millrace {

namespace {

// Calls move(from, to, count) for runs of kept slots that are neighbours in both places and stay within a block.
// Ascending, so that a row is read before it is overwritten: kept[i] >= i.
template <typename Move>
void move_runs(std::span<const int32_t> kept, size_t block_tokens, const Move& move) {
  for (size_t begin = 0, count; begin < kept.size(); begin += count) {
    const size_t from = static_cast<size_t>(kept[begin]), to = begin;
    const size_t room = block_tokens - std::max(from % block_tokens, to % block_tokens);
    for (count = 1;
         count < room && to + count < kept.size() && kept[to + count] == kept[begin] + static_cast<int>(count);)
      ++count;
    if (from != to) move(from, to, count);
  }
}

}  // namespace

// Slots [from, from + count) of one head, which are in one block, become [to, to + count), also in one.
void KvPool::move_rows(int64_t layer, int64_t head, std::span<const BlockId> table, size_t from, size_t to,
                       size_t count) {
  const auto block_tokens = static_cast<size_t>(layout_.block_tokens);
  const BlockId source = table[from / block_tokens], target = table[to / block_tokens];
  for (int64_t kind = 0; kind < planes(layer); ++kind) {
    const auto row = static_cast<size_t>(plane_row_bytes(layer, kind));
    std::memmove(plane(layer, target, kind, head) + to % block_tokens * row,
                 plane(layer, source, kind, head) + from % block_tokens * row, count * row);
  }
}

void KvPool::copy_slot(int64_t group, std::span<const BlockId> table, int64_t from, int64_t to) {
  if (!is_here(group)) return this->group(group).copy_slot(0, table, from, to);
  if (from == to) return;
  for_layers(group, [&](int64_t layer) {
    for (int64_t head = 0; head < layout_.layers[static_cast<size_t>(layer)].kv_heads; ++head)
      move_rows(layer, head, table, static_cast<size_t>(from), static_cast<size_t>(to), 1);
  });
}

void KvPool::compact(std::span<const BlockId> table, std::span<const int32_t> kept, int64_t heads, int64_t group) {
  const auto block_tokens = static_cast<size_t>(layout_.block_tokens);
  const auto move = [&](int64_t layer, int64_t head, size_t from, size_t to, size_t count) {
    move_rows(layer, head, table, from, to, count);
  };
  const auto each_head = [&](const auto& body) {
    for_layers(group, [&](int64_t layer) {
      const KvLayer& own = layout_.layers[static_cast<size_t>(layer)];
      if (own.summarizes_blocks()) return;
      const int64_t first = heads > 1 ? layout_.heads_before(layer) : 0;
      for (int64_t head = 0; head < own.kv_heads; ++head) body(layer, head, first + head);
    });
  };
  if (heads == 1) {
    move_runs(kept, block_tokens, [&](size_t from, size_t to, size_t count) {
      each_head([&](int64_t layer, int64_t head, int64_t) { move(layer, head, from, to, count); });
    });
    return;
  }
  const size_t tokens = kept.size() / static_cast<size_t>(heads);
  each_head([&](int64_t layer, int64_t head, int64_t index) {
    move_runs(kept.subspan(static_cast<size_t>(index) * tokens, tokens), block_tokens,
              [&](size_t from, size_t to, size_t count) { move(layer, head, from, to, count); });
  });
}

}  // namespace millrace
