#include "kv/move_token.h"

#include <cstring>

namespace millrace {

void move_token(KvPool& pool, std::span<const BlockId> table, int64_t from, int64_t to) {
  if (from == to) return;
  const KvLayout& layout = pool.layout();
  const BlockId source = table[static_cast<size_t>(from / layout.block_tokens)];
  const BlockId target = table[static_cast<size_t>(to / layout.block_tokens)];
  for (int64_t layer = 0; layer < std::ssize(layout.layers); ++layer) {
    const int64_t row = pool.row_bytes(layer);
    const int64_t read = from % layout.block_tokens * row, written = to % layout.block_tokens * row;
    for (int64_t head = 0; head < layout.layers[static_cast<size_t>(layer)].kv_heads; ++head) {
      std::memcpy(pool.keys(layer, target, head) + written, pool.keys(layer, source, head) + read,
                  static_cast<size_t>(row));
      std::memcpy(pool.values(layer, target, head) + written, pool.values(layer, source, head) + read,
                  static_cast<size_t>(row));
    }
  }
}

}  // namespace millrace
