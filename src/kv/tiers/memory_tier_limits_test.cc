// Capacity of the memory tier in tokens and in blocks, and what it rejects.
#include <gtest/gtest.h>

#include "kv/tiers/memory_tier.h"

namespace millrace {
namespace {

KvPool make_pool() { return std::move(*KvPool::create({find_format("f16"), 4, {{1, 8}}}, 6)); }

TEST(MemoryTierLimits, AreInTokensAndBlocks) {
  KvPool pool = make_pool();
  auto tier = std::move(*make_memory_tier(pool, 10));  // three blocks
  const BlockId blocks[] = {0, 1, 2, 3};
  EXPECT_EQ(tier->free_tokens(), 10);
  const auto put = [&](size_t count, int64_t tokens) { return tier->put(std::span(blocks).first(count), tokens); };
  EXPECT_EQ(put(3, 11).error().message, "KV tier: 11 tokens in 3 blocks do not fit, 10 and 3 are free");
  EXPECT_EQ(put(4, 4).error().message, "KV tier: 4 tokens in 4 blocks do not fit, 10 and 3 are free");
  EXPECT_EQ(put(4, 4).error().kind, ErrorKind::resource);
  const auto first = put(2, 7), second = put(1, 3);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(tier->free_tokens(), 0);
  EXPECT_EQ(put(1, 0).error().message, "KV tier: 0 tokens in 1 blocks do not fit, 0 and 0 are free");
  tier->erase(*first);
  EXPECT_EQ(tier->free_tokens(), 7);
  EXPECT_EQ(put(3, 1).error().message, "KV tier: 1 tokens in 3 blocks do not fit, 7 and 2 are free");
  EXPECT_EQ(put(1, 8).error().message, "KV tier: 8 tokens in 1 blocks do not fit, 7 and 2 are free");
  tier->erase(*first);
  EXPECT_EQ(tier->free_tokens(), 7) << "erased once";
  EXPECT_TRUE(put(2, 7).ok()) << "the blocks are free too";
  EXPECT_EQ(tier->free_tokens(), 0);
  EXPECT_EQ(tier->poll(*second), TierState::ready);
  EXPECT_EQ(tier->poll(99), TierState::failed);
}

TEST(MemoryTierLimits, TicketIsRestoredIntoAsManyBlocks) {
  KvPool pool = make_pool();
  auto tier = std::move(*make_memory_tier(pool, 100));
  const BlockId blocks[] = {0, 1, 2};
  const TierTicket ticket = *tier->put(std::span(blocks).first(2), 5);
  for (const size_t count : {1, 3}) {
    const auto refused = tier->get(ticket, std::span(blocks).first(count));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::internal);
    EXPECT_EQ(refused.error().message, "KV tier: no such ticket for that many blocks");
  }
  EXPECT_FALSE(tier->get(ticket + 1, std::span(blocks).first(2)).ok());
  EXPECT_TRUE(tier->get(ticket, std::span(blocks).first(2)).ok());
}

TEST(MemoryTierLimits, MayBeZeroButNotNegative) {
  KvPool pool = make_pool();
  ASSERT_TRUE(make_memory_tier(pool, 0).ok());
  EXPECT_EQ((*make_memory_tier(pool, 0))->free_tokens(), 0);
  const auto refused = make_memory_tier(pool, -1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
  EXPECT_EQ(refused.error().message, "swap tokens: must be 0 or more, got -1");
}

}  // namespace
}  // namespace millrace
