// KvPool::compact(): the tokens that a stream keeps move to its first slots. Rows are whole tokens of one head, so this
// works in every format whose rows are independent.
#include <algorithm>
#include <cstring>

#include "kv/pool.h"

namespace millrace {

// Ascending, so that a row is read before it is overwritten: kept[i] >= i. Rows that are neighbours in both places move
// together.
void KvPool::compact(std::span<const BlockId> table, std::span<const int32_t> kept) {
  const auto block_tokens = static_cast<size_t>(layout_.block_tokens);
  for (size_t begin = 0, count; begin < kept.size(); begin += count) {
    const size_t from = static_cast<size_t>(kept[begin]), to = begin;
    const size_t room = block_tokens - std::max(from % block_tokens, to % block_tokens);
    for (count = 1;
         count < room && to + count < kept.size() && kept[to + count] == kept[begin] + static_cast<int>(count);)
      ++count;
    if (from == to) continue;
    const BlockId source = table[from / block_tokens], target = table[to / block_tokens];
    for (int64_t layer = 0; layer < static_cast<int64_t>(buffers_.size()); ++layer) {
      const int64_t heads = layout_.layers[static_cast<size_t>(layer)].kv_heads;
      for (int64_t kind = 0; kind < planes(layer); ++kind) {
        const auto row = static_cast<size_t>(plane_row_bytes(layer, kind));
        for (int64_t head = 0; head < heads; ++head)
          std::memmove(plane(layer, target, kind, head) + to % block_tokens * row,
                       plane(layer, source, kind, head) + from % block_tokens * row, count * row);
      }
    }
  }
}

}  // namespace millrace
