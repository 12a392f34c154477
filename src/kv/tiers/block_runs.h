// The bytes of one block in one layer, in the order in which tiers store them: [K, V][head][token in block][row bytes],
// or tiles in place of the rows; [K] where values are parts of their keys.
#pragma once

#include <cstring>

#include "kv/pool.h"

namespace millrace {

// Calls use(uint8_t* row, size_t bytes) for every contiguous run of bytes in the pool.
template <typename Use>
void each_run_of(KvPool& pool, int64_t layer, BlockId block, Use&& use) {
  const int64_t heads = pool.layout().layers[static_cast<size_t>(layer)].kv_heads;
  for (int64_t kind = 0; kind < pool.planes(layer); ++kind)
    for (int64_t head = 0; head < heads; ++head)
      use(pool.plane(layer, block, kind, head), static_cast<size_t>(pool.plane_tile_bytes(layer, kind)));
}

inline void copy_out(KvPool& pool, int64_t layer, BlockId block, uint8_t* to) {
  each_run_of(pool, layer, block, [&](const uint8_t* row, size_t bytes) {
    std::memcpy(to, row, bytes);
    to += bytes;
  });
}

inline void copy_in(KvPool& pool, int64_t layer, BlockId block, const uint8_t* from) {
  each_run_of(pool, layer, block, [&](uint8_t* row, size_t bytes) {
    std::memcpy(row, from, bytes);
    from += bytes;
  });
}

}  // namespace millrace
