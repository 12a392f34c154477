#include "engine/block_ledger.h"

#include <gtest/gtest.h>

#include "formats/format.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 4;

class BlockLedgerTest : public ::testing::Test {
 protected:
  explicit BlockLedgerTest(int64_t blocks = 8) {
    auto pool = KvPool::create({find_format("f16"), kBlock, {}}, blocks);
    EXPECT_TRUE(pool.ok());
    pool_ = std::make_unique<KvPool>(std::move(*pool));
    index_ = std::make_unique<PrefixIndex>(*pool_, 0);
    ledger_ = std::make_unique<BlockLedger>(*pool_, index_.get());
  }

  LiveStream& stream(RequestId id) {
    auto made = std::make_unique<LiveStream>();
    made->sequence.id = id;
    made->sequence.phase = StreamPhase::running;
    lists_.add_running(std::move(made));
    return *lists_.running().back();
  }
  LiveStream& stream_of(RequestId id, int64_t tokens) {
    LiveStream& made = stream(id);
    made.sequence.tokens.assign(static_cast<size_t>(tokens), static_cast<TokenId>(id));
    EXPECT_TRUE(ledger_->reserve(made, tokens));
    made.sequence.computed = tokens;
    return made;
  }
  std::string checked() const {
    const auto result = ledger_->check(lists_.table());
    return result.ok() ? "" : result.error().message;
  }

  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<PrefixIndex> index_;
  std::unique_ptr<BlockLedger> ledger_;
  StreamLists lists_;
};

TEST_F(BlockLedgerTest, ReservesAndReleases) {
  LiveStream& a = stream_of(1, 9);
  EXPECT_EQ(a.sequence.kv.blocks.size(), 3u);
  EXPECT_EQ(ledger_->unheld_blocks(), 5);
  EXPECT_TRUE(ledger_->reserve(a, 12)) << "the third block has room";
  EXPECT_EQ(ledger_->unheld_blocks(), 5);
  EXPECT_EQ(checked(), "");
  ledger_->release(a);
  a.sequence.computed = 0;
  EXPECT_TRUE(a.sequence.kv.blocks.empty());
  EXPECT_EQ(ledger_->unheld_blocks(), 8);
  EXPECT_EQ(checked(), "");
}

TEST_F(BlockLedgerTest, RetainsFoundBlocksWhenPoolIsExhausted) {
  stream_of(1, 6 * kBlock);
  LiveStream& b = stream(2);
  EXPECT_FALSE(ledger_->reserve(b, 3 * kBlock));
  EXPECT_EQ(b.sequence.kv.blocks.size(), 2u);
  EXPECT_EQ(ledger_->unheld_blocks(), 0);
  EXPECT_EQ(checked(), "");
}

TEST_F(BlockLedgerTest, OmittedTokensNeedNoBlocks) {
  LiveStream& a = stream(1);
  a.sequence.kv.left_out = 2 * kBlock;
  EXPECT_TRUE(ledger_->reserve(a, 5 * kBlock));
  EXPECT_EQ(a.sequence.kv.blocks.size(), 3u);
}

TEST_F(BlockLedgerTest, EvictsFromThePrefixIndex) {
  LiveStream& a = stream_of(1, 8 * kBlock);
  index_->insert(a.sequence.tokens, a.sequence.kv.blocks);
  ledger_->release(a);
  a.sequence.computed = 0;
  EXPECT_EQ(pool_->free_blocks(), 0);
  EXPECT_EQ(ledger_->unheld_blocks(), 8) << "blocks of the index alone can be had";
  EXPECT_EQ(checked(), "");
  stream_of(2, 3 * kBlock);
  EXPECT_EQ(index_->size(), 5);
  EXPECT_EQ(checked(), "");
}

TEST_F(BlockLedgerTest, SharesFullBlocksAndCopiesThePartialOne) {
  LiveStream& a = stream_of(1, 10);
  LiveStream& b = stream(2);
  ledger_->share(a.sequence, b, 10);
  EXPECT_EQ(b.sequence.computed, 10);
  ASSERT_EQ(b.sequence.kv.blocks.size(), 3u);
  for (size_t i : {0u, 1u}) {
    EXPECT_EQ(b.sequence.kv.blocks[i], a.sequence.kv.blocks[i]);
    EXPECT_EQ(ledger_->holders(a.sequence.kv.blocks[i]), 2);
  }
  EXPECT_NE(b.sequence.kv.blocks[2], a.sequence.kv.blocks[2]);
  EXPECT_EQ(a.sequence.kv.shared_blocks, 2);
  EXPECT_EQ(b.sequence.kv.shared_blocks, 2);
  EXPECT_EQ(ledger_->unheld_blocks(), 4);
  EXPECT_EQ(checked(), "");
  ledger_->release(a);
  a.sequence.computed = 0;
  EXPECT_EQ(ledger_->unheld_blocks(), 5) << "the other stream still holds the shared ones";
  EXPECT_EQ(checked(), "");
}

TEST_F(BlockLedgerTest, WithoutACopyBlockItsTokensAreRecomputed) {
  LiveStream& a = stream_of(1, 8 * kBlock - 1);
  LiveStream& b = stream(2);
  ledger_->share(a.sequence, b, 8 * kBlock - 1);
  EXPECT_EQ(b.sequence.computed, 7 * kBlock);
  EXPECT_EQ(checked(), "");
}

TEST_F(BlockLedgerTest, AdoptsIndexedBlocks) {
  LiveStream& a = stream_of(1, 3 * kBlock);
  index_->insert(a.sequence.tokens, a.sequence.kv.blocks);
  LiveStream& b = stream(2);
  ledger_->adopt(b, index_->match(a.sequence.tokens));
  b.sequence.computed = 3 * kBlock;
  EXPECT_EQ(b.sequence.kv.blocks, a.sequence.kv.blocks);
  EXPECT_EQ(b.sequence.kv.shared_blocks, 3);
  EXPECT_NE(checked().find("unshared"), std::string::npos) << "the first stream does not know yet: " << checked();
  a.sequence.kv.shared_blocks = 3;
  EXPECT_EQ(checked(), "");
}

TEST_F(BlockLedgerTest, CheckFindsWrongCounts) {
  LiveStream& a = stream_of(1, 10);
  a.sequence.computed = 13;
  EXPECT_NE(checked().find("13 tokens are stored in 3 blocks"), std::string::npos) << checked();
  a.sequence.computed = 10;
  const BlockId last = a.sequence.kv.blocks.back();
  a.sequence.kv.blocks.pop_back();
  a.sequence.computed = 8;
  EXPECT_NE(checked().find("1 streams counted, 0 hold it"), std::string::npos) << checked();
  a.sequence.kv.blocks.push_back(last);
  pool_->share(last);
  EXPECT_NE(checked().find("references counted"), std::string::npos) << checked();
  pool_->release(last);
  EXPECT_EQ(checked(), "");
  a.sequence.kv.left_out = 4;
  a.sequence.prefix.caches = true;
  EXPECT_NE(checked().find("left out"), std::string::npos) << checked();
}

}  // namespace
}  // namespace millrace
