// Pools with recurrent layers for tests of the stores: blocks and states are distinguished by their bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kv/prefix_states.h"
#include "kv/tiers/block_image.h"
#include "kv/tiers/block_runs.h"

namespace millrace {

inline constexpr int64_t kStateBlock = 4;

// One layer with attention, of 256 bytes a block, between two recurrent ones.
inline KvPool hybrid_pool() {
  const KvLayout layout{find_format("f16"), kStateBlock, {{0, 0, 100}, {2, 8}, {0, 0, 50}}};
  return std::move(*KvPool::create(layout, 12, {.states = 4}));
}
// Only recurrent layers: 20,032 bytes, which are two pieces.
inline KvPool recurrent_pool() {
  const KvLayout layout{find_format("f16"), kStateBlock, {{0, 0, 5000}, {0, 0, 5}}};
  return std::move(*KvPool::create(layout, 12, {.states = 4}));
}

inline void fill_state(KvPool& pool, StateId slot, int64_t value) {
  const std::span<float> values = slot_values(pool.states(), slot);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(value * 10'000 + static_cast<int64_t>(i));
}
inline bool state_is(KvPool& pool, StateId slot, int64_t value) {
  const std::span<float> values = slot_values(pool.states(), slot);
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] != static_cast<float>(value * 10'000 + static_cast<int64_t>(i))) return false;
  return true;
}
inline size_t block_bytes(const KvPool& pool, int64_t layer) {
  return static_cast<size_t>(pool.layout().block_bytes(pool.layout().layers[static_cast<size_t>(layer)]));
}
inline void fill_block(KvPool& pool, BlockId block, uint8_t value) {
  for (int64_t layer = 0; layer < std::ssize(pool.layout().layers); ++layer)
    copy_in(pool, layer, block, std::vector<uint8_t>(block_bytes(pool, layer), value).data());
}
inline bool block_is(KvPool& pool, BlockId block, uint8_t value) {
  for (int64_t layer = 0; layer < std::ssize(pool.layout().layers); ++layer) {
    std::vector<uint8_t> bytes(block_bytes(pool, layer));
    copy_out(pool, layer, block, bytes.data());
    if (std::ranges::any_of(bytes, [&](uint8_t one) { return one != value; })) return false;
  }
  return true;
}

}  // namespace millrace
