#include "kv/tiers/memory_tier.h"

#include <gtest/gtest.h>

#include <cstring>

namespace millrace {
namespace {

KvPool tier_pool() {
  auto pool = KvPool::create({find_format("f16"), 4, {{2, 8}, {1, 16}}}, 6);
  EXPECT_TRUE(pool.ok());
  return std::move(*pool);
}

// Bytes that differ from block to block, layer to layer, head to head and between keys and values.
void fill(KvPool& pool, BlockId block, uint8_t seed) {
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < (layer ? 1 : 2); ++head) {
      const auto bytes = static_cast<size_t>(4 * pool.row_bytes(layer));
      for (size_t i = 0; i < bytes; ++i) {
        pool.keys(layer, block, head)[i] = static_cast<uint8_t>(seed + 3 * layer + 7 * head + static_cast<int64_t>(i));
        pool.values(layer, block, head)[i] =
            static_cast<uint8_t>(seed + 5 * layer + 11 * head + 2 * static_cast<int64_t>(i) + 1);
      }
    }
  }
}

bool same(KvPool& pool, BlockId a, BlockId b) {
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < (layer ? 1 : 2); ++head) {
      const auto bytes = static_cast<size_t>(4 * pool.row_bytes(layer));
      if (std::memcmp(pool.keys(layer, a, head), pool.keys(layer, b, head), bytes) != 0) return false;
      if (std::memcmp(pool.values(layer, a, head), pool.values(layer, b, head), bytes) != 0) return false;
    }
  }
  return true;
}

TEST(MemoryTier, DataIsRestoredIntoOtherBlocks) {
  KvPool pool = tier_pool();
  auto tier = make_memory_tier(pool, 100);
  ASSERT_TRUE(tier.ok());
  for (BlockId b = 0; b < 6; ++b) fill(pool, b, static_cast<uint8_t>(40 * b));
  const BlockId out[] = {1, 3}, in[] = {4, 0};
  auto ticket = (*tier)->put(out, 7);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ((*tier)->free_tokens(), 93);
  EXPECT_EQ((*tier)->poll(*ticket), TierState::ready);
  ASSERT_FALSE(same(pool, 1, 4));
  ASSERT_TRUE((*tier)->get(*ticket, in).ok());
  EXPECT_EQ((*tier)->poll(*ticket), TierState::ready);
  EXPECT_TRUE(same(pool, 1, 4));
  EXPECT_TRUE(same(pool, 3, 0));
  (*tier)->erase(*ticket);
  EXPECT_EQ((*tier)->free_tokens(), 100);
  EXPECT_EQ((*tier)->poll(*ticket), TierState::failed);
  EXPECT_FALSE((*tier)->get(*ticket, in).ok());
}

TEST(MemoryTier, RejectsWhatDoesNotFit) {
  KvPool pool = tier_pool();
  auto tier = make_memory_tier(pool, 8);
  const BlockId blocks[] = {0, 1};
  ASSERT_TRUE((*tier)->put(blocks, 8).ok());
  auto more = (*tier)->put(blocks, 1);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().kind, ErrorKind::resource);
}

}  // namespace
}  // namespace millrace
