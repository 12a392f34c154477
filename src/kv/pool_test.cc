#include "kv/pool.h"

#include <gtest/gtest.h>

#include "kv/prefix_index.h"

namespace millrace {
namespace {

KvPool make_pool(int64_t blocks, const char* format = "f16", int64_t head_dim = 32) {
  KvLayout layout{find_format(format), 4, {{2, head_dim}, {2, head_dim}}};
  auto pool = KvPool::create(layout, blocks);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

std::vector<TokenId> tokens(std::initializer_list<TokenId> list) { return list; }

TEST(KvPool, FreePlusHeldEqualsTotal) {
  KvPool pool = make_pool(3);
  BlockId a = *pool.allocate(), b = *pool.allocate();
  EXPECT_EQ(pool.free_blocks(), 1);
  pool.share(a);
  pool.release(a);
  EXPECT_EQ(pool.free_blocks(), 1);
  pool.release(a);
  EXPECT_EQ(pool.free_blocks(), 2);
  EXPECT_TRUE(pool.allocate().ok());
  EXPECT_TRUE(pool.allocate().ok());
  auto none = pool.allocate();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::resource);
  pool.release(b);
  EXPECT_TRUE(pool.allocate().ok());
}

TEST(KvPool, HeadsDoNotOverlapAndCopyTakesEveryLayer) {
  KvPool pool = make_pool(2);
  BlockId a = *pool.allocate(), b = *pool.allocate();
  uint8_t mark = 1;
  for (int layer = 0; layer < 2; ++layer)
    for (int head = 0; head < 2; ++head) {
      std::fill_n(pool.keys(layer, a, head), 4 * pool.row_bytes(layer), mark++);
      std::fill_n(pool.values(layer, a, head), 4 * pool.row_bytes(layer), mark++);
    }
  pool.copy(a, b);
  mark = 1;
  for (int layer = 0; layer < 2; ++layer)
    for (int head = 0; head < 2; ++head)
      for (uint8_t* rows : {pool.keys(layer, b, head), pool.values(layer, b, head)}) {
        EXPECT_EQ(rows[0], mark);
        EXPECT_EQ(rows[4 * pool.row_bytes(layer) - 1], mark++);
      }
}

// What attention reads for a lone stream is one run of memory.
TEST(KvPool, AFreshPoolsBlocksOfAHeadFollowEachOther) {
  KvPool pool = make_pool(5);
  BlockId before = *pool.allocate();
  for (int i = 1; i < 5; ++i) {
    const BlockId block = *pool.allocate();
    for (int head = 0; head < 2; ++head) {
      EXPECT_EQ(pool.keys(1, block, head), pool.keys(1, before, head) + 4 * pool.row_bytes(1));
      EXPECT_EQ(pool.values(1, block, head), pool.values(1, before, head) + 4 * pool.row_bytes(1));
    }
    before = block;
  }
}

TEST(KvPool, RefusesWhatAFormatCannotHold) {
  KvLayout layout{find_format("q8_0"), 16, {{1, 40}}};
  auto pool = KvPool::create(layout, 4);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().kind, ErrorKind::unsupported);
}

TEST(PrefixIndex, MatchesWholeBlocksOnly) {
  KvPool pool = make_pool(4);
  PrefixIndex index(pool, 1);
  std::vector<BlockId> blocks = {*pool.allocate(), *pool.allocate()};
  index.insert(tokens({1, 2, 3, 4, 5, 6, 7, 8, 9}), blocks);
  EXPECT_EQ(index.size(), 2);
  auto hit = index.match(tokens({1, 2, 3, 4, 5, 6, 7, 9}));
  ASSERT_EQ(hit.size(), 1u);
  EXPECT_EQ(hit[0], blocks[0]);
  EXPECT_EQ(pool.references(blocks[0]), 3);
  EXPECT_TRUE(index.match(tokens({2, 2, 3, 4})).empty());
  EXPECT_TRUE(index.match(tokens({1, 2, 3})).empty());
}

TEST(PrefixIndex, TheSameTokensAfterAnotherParentAreAnotherBlock) {
  KvPool pool = make_pool(4);
  PrefixIndex index(pool, 1);
  std::vector<BlockId> blocks = {*pool.allocate(), *pool.allocate()};
  index.insert(tokens({1, 1, 1, 1, 2, 2, 2, 2}), blocks);
  EXPECT_TRUE(index.match(tokens({2, 2, 2, 2})).empty());
}

TEST(PrefixIndex, EvictsLeavesFirstAndNeverWhatAStreamHolds) {
  KvPool pool = make_pool(3);
  PrefixIndex index(pool, 1);
  std::vector<BlockId> blocks = {*pool.allocate(), *pool.allocate(), *pool.allocate()};
  index.insert(tokens({1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}), blocks);
  EXPECT_EQ(index.evict(3), 0);  // the stream still holds all three
  pool.release(blocks[2]);
  EXPECT_EQ(index.evictable(), 1);
  EXPECT_EQ(index.evict(3), 1);
  pool.release(blocks[1]);
  pool.release(blocks[0]);
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(index.match(tokens({1, 1, 1, 1})).size(), 1u);  // the root went last
  EXPECT_EQ(pool.free_blocks(), 2);
}

}  // namespace
}  // namespace millrace
