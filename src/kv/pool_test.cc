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

TEST(KvPool, HeadsDoNotOverlapAndCopyCoversEveryLayer) {
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

// A single stream's keys are contiguous, which attention relies on for speed.
TEST(KvPool, FreshPoolHasContiguousBlocksPerHead) {
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

// 4 KiB of one head of one layer: 64 tokens of 32 half-precision values.
KvPool make_virtual_pool(int64_t blocks, int64_t range_blocks, int64_t streams) {
  KvLayout layout{find_format("f16"), 64, {{2, 32}, {1, 32}}};
  EXPECT_EQ(layout.page_block_tokens(4096), 64);
  auto pool = KvPool::create(layout, blocks, {KvPoolMode::virtual_ranges, 64 * range_blocks, streams});
  EXPECT_TRUE(pool.ok()) << (pool.ok() ? "" : pool.error().message);
  return std::move(pool).value();
}

void write(KvPool& pool, BlockId block, uint8_t mark) {
  for (int layer = 0; layer < 2; ++layer)
    for (int head = 0; head < (layer ? 1 : 2); ++head) {
      std::fill_n(pool.keys(layer, block, head), 64 * pool.row_bytes(layer), mark);
      std::fill_n(pool.values(layer, block, head), 64 * pool.row_bytes(layer), mark);
    }
}

TEST(VirtualKvPool, InterleavedStreamsStayContiguous) {
  KvPool pool = make_virtual_pool(8, 4, 2);
  KvRange a, b;
  BlockId last_a = *pool.allocate(a), last_b = *pool.allocate(b);
  for (int i = 1; i < 4; ++i) {
    const BlockId next_a = *pool.allocate(a), next_b = *pool.allocate(b);
    EXPECT_EQ(pool.keys(1, next_a, 0), pool.keys(1, last_a, 0) + 4096);
    EXPECT_EQ(pool.values(0, next_b, 1), pool.values(0, last_b, 1) + 4096);
    last_a = next_a, last_b = next_b;
  }
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_FALSE(pool.allocate(a).ok());
  EXPECT_TRUE(pool.check().ok());
}

TEST(VirtualKvPool, FreedPagesStayUntilNeeded) {
  KvPool pool = make_virtual_pool(6, 4, 2);
  KvRange a;
  std::vector<BlockId> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(*pool.allocate(a));
  for (BlockId block : blocks) write(pool, block, 7);
  for (BlockId block : blocks) pool.release(block);
  pool.close(a);
  EXPECT_EQ(pool.free_blocks(), 6);
  EXPECT_EQ(pool.committed_blocks(), 4);
  KvRange b;  // the range with mapped pages is used first
  EXPECT_EQ(*pool.allocate(b), blocks[0]);
  EXPECT_EQ(pool.keys(0, blocks[0], 1)[100], 7);
  KvRange c;
  std::vector<BlockId> others;
  for (int i = 0; i < 5; ++i) others.push_back(*pool.allocate(c));  // one range and a bit
  EXPECT_EQ(pool.committed_blocks(), 6);
  EXPECT_EQ(pool.keys(0, others[0], 0)[0], 0);
  EXPECT_EQ(pool.keys(0, blocks[0], 1)[100], 7);  // in use
  EXPECT_EQ(pool.keys(0, blocks[3], 1)[100], 0);  // released
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_TRUE(pool.check().ok());
}

TEST(VirtualKvPool, BlocksAreWholePages) {
  EXPECT_EQ((KvLayout{find_format("f16"), 16, {{2, 64}}}).page_block_tokens(4096), 32);
  EXPECT_EQ((KvLayout{find_format("f16"), 33, {{2, 64}}}).page_block_tokens(4096), 64);
  EXPECT_EQ((KvLayout{find_format("q8_0"), 16, {{2, 64}}}).page_block_tokens(4096), 1024);
  EXPECT_EQ((KvLayout{find_format("f16"), 16, {{2, 64}, {2, 96}}}).page_block_tokens(4096), 64);
  auto pool = KvPool::create({find_format("f16"), 16, {{2, 64}}}, 4, {KvPoolMode::virtual_ranges, 64, 2});
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().kind, ErrorKind::user);
  EXPECT_NE(pool.error().message.find("32 are"), std::string::npos);
  auto huge = KvPool::create({find_format("f16"), 16384, {{1, 64}}}, 2, {KvPoolMode::virtual_ranges, 32768, 1});
  ASSERT_TRUE(huge.ok());
  EXPECT_TRUE(huge->huge_pages());
  EXPECT_FALSE(find_kv_pool_mode("both").ok());
}

// Random streams that grow, share, end and are truncated: the counts hold after every step, no block is allocated
// twice, and a stream's data is intact until it releases its blocks.
TEST(VirtualKvPool, FreePlusHeldEqualsTotalUnderRandomUse) {
  constexpr int64_t kBlocks = 12;
  KvPool pool = make_virtual_pool(kBlocks, 6, 3);
  struct Stream {
    KvRange range;
    std::vector<std::pair<BlockId, uint8_t>> blocks;
  };
  std::vector<Stream> streams;
  uint64_t state = 1;
  const auto draw = [&](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  uint8_t mark = 0;
  int64_t refused = 0;
  for (int step = 0; step < 5000; ++step) {
    const uint64_t what = draw(10);
    if (streams.empty() || (what == 0 && streams.size() < 9)) {
      Stream fresh;
      if (!streams.empty() && draw(2)) {  // starts with another stream's blocks
        const Stream& other = streams[draw(streams.size())];
        for (size_t i = 0; i < other.blocks.size() / 2; ++i) {
          pool.share(other.blocks[i].first);
          fresh.blocks.push_back(other.blocks[i]);
        }
      }
      streams.push_back(std::move(fresh));
    } else if (what < 7) {
      Stream& stream = streams[draw(streams.size())];
      auto block = pool.allocate(stream.range);
      if (!block.ok()) {
        ASSERT_EQ(pool.free_blocks(), 0);
        ++refused;
      } else {
        ASSERT_EQ(pool.references(*block), 1);
        write(pool, *block, ++mark);
        stream.blocks.push_back({*block, mark});
      }
    } else {
      const size_t at = draw(streams.size());
      Stream& stream = streams[at];
      const bool whole = what < 9;
      for (size_t keep = whole ? 0 : stream.blocks.size() / 2; stream.blocks.size() > keep;) {
        pool.release(stream.blocks.back().first);
        stream.blocks.pop_back();
      }
      if (whole) {
        pool.close(stream.range);
        streams.erase(streams.begin() + static_cast<ptrdiff_t>(at));
      }
    }
    auto counts = pool.check();
    ASSERT_TRUE(counts.ok()) << counts.error().message;
    ASSERT_LE(pool.committed_blocks(), kBlocks);
    for (const Stream& stream : streams)
      for (const auto& [block, wrote] : stream.blocks) ASSERT_EQ(pool.values(1, block, 0)[4095], wrote) << step;
  }
  EXPECT_GT(refused, 100);
}

TEST(KvPool, RejectsUnsupportedFormats) {
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

TEST(PrefixIndex, SameTokensUnderAnotherParentAreAnotherBlock) {
  KvPool pool = make_pool(4);
  PrefixIndex index(pool, 1);
  std::vector<BlockId> blocks = {*pool.allocate(), *pool.allocate()};
  index.insert(tokens({1, 1, 1, 1, 2, 2, 2, 2}), blocks);
  EXPECT_TRUE(index.match(tokens({2, 2, 2, 2})).empty());
}

TEST(PrefixIndex, EvictsLeavesFirstAndNeverHeldBlocks) {
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
  EXPECT_EQ(index.match(tokens({1, 1, 1, 1})).size(), 1u);  // the root was evicted last
  EXPECT_EQ(pool.free_blocks(), 2);
}

}  // namespace
}  // namespace millrace
