#include "kv/move_token.h"

#include <cstring>

namespace millrace {

void move_token(KvPool& pool, std::span<const BlockId> table, int64_t from, int64_t to) {
  if (from == to) return;
  const KvLayout& layout = pool.layout();
  const BlockId source = table[static_cast<size_t>(from / layout.block_tokens)];
  const BlockId target = table[static_cast<size_t>(to / layout.block_tokens)];
  for (int64_t layer = 0; layer < std::ssize(layout.layers); ++layer) {
    const int64_t read = from % layout.block_tokens, written = to % layout.block_tokens;
    const int64_t heads = layout.layers[static_cast<size_t>(layer)].kv_heads;
    for (int64_t kind = 0; kind < pool.planes(layer); ++kind) {
      const int64_t row = pool.plane_row_bytes(layer, kind);
      for (int64_t head = 0; head < heads; ++head)
        std::memcpy(pool.plane(layer, target, kind, head) + written * row,
                    pool.plane(layer, source, kind, head) + read * row, static_cast<size_t>(row));
    }
  }
}

}  // namespace millrace
