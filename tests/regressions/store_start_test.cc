// A start over a large prefix store took 5 to 16 seconds after kill -9, where at most five were promised: the wait for
// the dead process's lock was counted in sleeps of 10 ms, however long each took, and then every record of the file was
// read before the engine began. The tests used small files on idle machines.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "kv/tiers/block_runs.h"
#include "kv/tiers/ssd_store.h"

namespace millrace {
namespace {

constexpr int64_t kStartBlock = 4, kBlocks = 6000;
constexpr int64_t kSlotFile = 2 * 4096;  // one block: its record and one part

class StoreStart : public ::testing::TestWithParam<StoreOrder> {
 protected:
  void SetUp() override {
    auto made = KvPool::create({find_format("f16"), kStartBlock, {{1, 8}}}, 4);
    ASSERT_TRUE(made.ok());
    pool_ = std::make_unique<KvPool>(std::move(*made));
    path_ = ::testing::TempDir() + "store_start_" + std::to_string(::getpid());
    for (int64_t i = 0; i < kBlocks * kStartBlock; ++i) tokens_.push_back(static_cast<TokenId>(i % 50'000));
    chain_ = prefix_chain(tokens_, kStartBlock, 0);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<PrefixStore> open(double scan_seconds) {
    SsdStoreOptions o;
    o.path = path_;
    o.bytes = 4096 + (kBlocks + 100) * kSlotFile;
    o.identity_text = "a model";
    o.order = GetParam();
    o.scan_seconds = scan_seconds;
    auto store = make_ssd_store(*pool_, o);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return store.ok() ? std::move(*store) : nullptr;
  }
  void put(PrefixStore& store, std::span<const ChainLink> links) {
    for (const ChainLink& link : links) {
      std::vector<uint8_t> bytes(static_cast<size_t>(2 * kStartBlock * pool_->row_bytes(0)),
                                 static_cast<uint8_t>(link.key.low));
      copy_in(*pool_, 0, 0, bytes.data());
      store.put(link, 0, true);
    }
    store.flush();
  }
  bool comes_back(PrefixStore& store, const ChainLink& link) {
    if (store.find({&link, 1}) != 1) return false;
    const BlockId into = 1;
    const TierTicket ticket = store.load({&link, 1}, {&into, 1});
    store.wait_layer(ticket, 0, PrefixStore::kNoDeadline);
    LoadProgress progress = store.poll(ticket);
    while (progress.state == TierState::busy) progress = store.poll(ticket);
    store.erase(ticket);
    std::vector<uint8_t> bytes(static_cast<size_t>(2 * kStartBlock * pool_->row_bytes(0)));
    copy_out(*pool_, 0, 1, bytes.data());
    return progress.blocks == 1 && bytes == std::vector<uint8_t>(bytes.size(), static_cast<uint8_t>(link.key.low));
  }
  // Waits until every record is read; find() registers them.
  void wait_for_records(PrefixStore& store) {
    for (int i = 0; i < 6000 && store.stats().unread_slots > 0; ++i) {
      store.find(std::span(chain_).first(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(store.stats().unread_slots, 0);
  }

  std::unique_ptr<KvPool> pool_;
  std::string path_;
  std::vector<TokenId> tokens_;
  std::vector<ChainLink> chain_;
};

TEST_P(StoreStart, WorksBeforeItsRecordsAreReadAndFindsAllOfThemLater) {
  { put(*open(60), chain_); }
  auto store = open(0);
  ASSERT_TRUE(store);
  EXPECT_GT(store->stats().unread_slots, 0);  // it did not wait for 24 MB of records
  // Meanwhile it stores and returns new blocks, whether or not the file already has them.
  std::vector<TokenId> other(40 * kStartBlock, 77);
  const auto fresh = prefix_chain(other, kStartBlock, 1);
  put(*store, fresh);
  put(*store, std::span(chain_).last(10));
  wait_for_records(*store);
  EXPECT_EQ(store->find(chain_), kBlocks);
  for (size_t i = 0; i < chain_.size(); i += 397) EXPECT_TRUE(comes_back(*store, chain_[i])) << i;
  EXPECT_TRUE(comes_back(*store, chain_.back()));
  EXPECT_EQ(store->stats().corrupt_blocks, 0);
  // So does the next store, which has time to read all records.
  store.reset();
  store = open(60);
  EXPECT_EQ(store->stats().unread_slots, 0);
  EXPECT_EQ(store->find(chain_), kBlocks);
  EXPECT_EQ(store->stats().corrupt_blocks, 0);
}

TEST_P(StoreStart, ClosesAtOnceWithUnreadRecords) {
  { put(*open(60), chain_); }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(open(0));
  EXPECT_EQ(open(60)->find(chain_), kBlocks);
}

// Records written while older ones are still unread take precedence over them, at the next start too: a block that was
// found damaged and stored again does not come back damaged.
TEST_P(StoreStart, RecordsWrittenMeanwhileTakePrecedenceOverOlderOnes) {
  { put(*open(60), chain_); }
  const ChainLink& last = chain_.back();
  for (int round = 0; round < 3; ++round) {
    auto store = open(0);
    put(*store, {&last, 1});
    wait_for_records(*store);
    EXPECT_TRUE(comes_back(*store, last));
    EXPECT_EQ(store->stats().blocks, kBlocks);
  }
  auto store = open(60);
  EXPECT_EQ(store->stats().blocks, kBlocks);
  EXPECT_TRUE(comes_back(*store, last));
}

INSTANTIATE_TEST_SUITE_P(Orders, StoreStart, ::testing::Values(StoreOrder::arrival, StoreOrder::importance));

}  // namespace
}  // namespace millrace
