// The prefix store's statistics, exact to the block and byte: what was written, read and found damaged, and its
// estimate of the memory it needs.
#include "kv/tiers/ssd_store_figures_test.h"

namespace millrace {
namespace {

TEST_P(SsdFigures, WritesAndReads) {
  open(10);
  EXPECT_EQ(store_->stats().capacity, 10);
  EXPECT_EQ(store_->stats().unread_slots, 0);
  EXPECT_EQ(store_->find(chain_), 0);
  put(std::span(chain_).first(3));
  ASSERT_TRUE(stored(3)) << "written without a flush";
  PrefixStoreStats stats = store_->stats();
  EXPECT_EQ(stats.written_blocks, 3);
  EXPECT_EQ(stats.written_bytes, 3 * kSlot);
  EXPECT_EQ(stats.read_blocks, 0);
  EXPECT_EQ(stats.dropped_blocks, 0);
  EXPECT_EQ(stats.corrupt_blocks, 0);
  EXPECT_EQ(store_->find(chain_), 3);
  EXPECT_TRUE(store_->holds(chain_[2]));
  EXPECT_FALSE(store_->holds(chain_[3]));
  const LoadProgress progress = load(std::span(chain_).first(3), into_);
  EXPECT_EQ(progress.state, TierState::ready);
  EXPECT_EQ(progress.blocks, 3);
  EXPECT_EQ(progress.layers, 2);
  EXPECT_GT(progress.seconds, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(filled(into_[static_cast<size_t>(i)], static_cast<uint8_t>(10 + i)));
  stats = store_->stats();
  EXPECT_EQ(stats.read_blocks, 3);
  EXPECT_EQ(stats.read_bytes, 3 * kSlot);
  put(std::span(chain_).first(3));  // a second put changes nothing
  store_->flush();
  ASSERT_TRUE(stored(3));
  EXPECT_EQ(store_->stats().written_blocks, 3);
}

TEST_P(SsdFigures, LoadUsesTheShorterList) {
  open(10);
  put(std::span(chain_).first(4));
  ASSERT_TRUE(stored(4));
  struct Case {
    size_t links, blocks;
    int64_t expected;
  };
  for (const Case& one : {Case{2, 3, 2}, {3, 2, 2}, {4, 4, 4}, {6, 6, 4}, {0, 2, 0}, {2, 0, 0}}) {
    for (const BlockId block : into_) fill(block, 1);
    const TierTicket ticket = store_->load(std::span(chain_).first(one.links), std::span(into_).first(one.blocks));
    EXPECT_EQ(store_->loading_blocks(), one.expected);
    store_->wait_layer(ticket, 0, PrefixStore::kNoDeadline);
    EXPECT_GE(store_->poll(ticket).layers, 1);
    store_->wait_layer(ticket, 2, PrefixStore::kNoDeadline);
    EXPECT_EQ(store_->poll(ticket).blocks, one.expected);
    EXPECT_EQ(store_->loading_blocks(), 0) << "its end was reported";
    store_->erase(ticket);
    EXPECT_EQ(store_->loading_blocks(), 0);
    for (size_t i = 0; i < into_.size(); ++i)
      EXPECT_TRUE(filled(into_[i], static_cast<uint8_t>(static_cast<int64_t>(i) < one.expected ? 10 + i : 1))) << i;
  }
  store_->wait_layer(77, 0, PrefixStore::kNoDeadline);  // unknown load: returns at once
  store_->erase(77);
  EXPECT_EQ(store_->poll(77).state, TierState::failed);
  EXPECT_EQ(store_->stats().read_blocks, 12);
}

TEST_P(SsdFigures, DamagedBlockIsCountedOnce) {
  open(10);
  put(std::span(chain_).first(3));
  ASSERT_TRUE(stored(3));
  open(10);
  ASSERT_EQ(store_->stats().blocks, 3);
  const int64_t slot_of_1 = 1;  // slots were allocated in the order of the puts
  damage(10, slot_of_1);
  const TierTicket first = store_->load(std::span(chain_).first(3), into_),
                   second = store_->load(std::span(chain_).first(3), std::span(into_).subspan(4));
  for (const TierTicket ticket : {first, second}) {
    store_->wait_layer(ticket, 2, PrefixStore::kNoDeadline);
    EXPECT_EQ(store_->poll(ticket).blocks, 1) << "intact blocks before the damaged one";
    EXPECT_EQ(store_->poll(ticket).state, TierState::ready);
  }
  EXPECT_EQ(store_->stats().corrupt_blocks, 1);
  EXPECT_EQ(store_->stats().read_blocks, 4);
  EXPECT_EQ(store_->stats().read_bytes, 4 * kSlot);
  EXPECT_EQ(store_->stats().blocks, 2);
  EXPECT_EQ(store_->find(chain_), 1);
}

// Blocks that were in the file when it was opened are verified once, at their next put, and rewritten only if damaged.
TEST_P(SsdFigures, StoredBlocksAreVerifiedOnce) {
  open(10);
  put(std::span(chain_).first(3));
  open(10);
  damage(10, 2);
  put(std::span(chain_).first(3));
  ASSERT_TRUE(stored(3));
  EXPECT_EQ(store_->stats().written_blocks, 1);
  EXPECT_EQ(store_->stats().written_bytes, kSlot);
  EXPECT_EQ(store_->stats().corrupt_blocks, 1);
  EXPECT_EQ(store_->stats().dropped_blocks, 0);
  damage(10, 2);
  damage(10, 0);
  put(std::span(chain_).first(3));
  ASSERT_TRUE(stored(3));
  EXPECT_EQ(store_->stats().written_blocks, 1) << "all three were verified";
  EXPECT_EQ(load(std::span(chain_).first(3), into_).blocks, 0);
  EXPECT_EQ(store_->stats().corrupt_blocks, 3);
}

TEST_P(SsdFigures, BlocksReadIntactAreNotVerifiedAgain) {
  open(10);
  put(std::span(chain_).first(2));
  open(10);
  EXPECT_EQ(load(std::span(chain_).first(1), into_).blocks, 1);
  damage(10, 0);
  damage(10, 1);
  put(std::span(chain_).first(2));
  ASSERT_TRUE(stored(2));
  EXPECT_EQ(store_->stats().corrupt_blocks, 1) << "the second one was not read";
  EXPECT_EQ(store_->stats().written_blocks, 1);
}

TEST_P(SsdFigures, BlockBeingReadIsNotVerified) {
  open(10);
  put(std::span(chain_).first(1));
  open(10);
  const TierTicket ticket = store_->load(std::span(chain_).first(1), into_);
  put(std::span(chain_).first(1));
  EXPECT_TRUE(store_->holds(chain_[0]));
  store_->wait_layer(ticket, 2, PrefixStore::kNoDeadline);
  EXPECT_EQ(store_->poll(ticket).blocks, 1);
  EXPECT_TRUE(store_->has_room());
  EXPECT_EQ(store_->stats().written_blocks, 0);
}

TEST_P(SsdFigures, FailedSyncDropsTheBlocks) {
  open(10);
  calls_.sync = [] { return EIO; };
  put(std::span(chain_).first(2));
  for (int tries = 0; tries < 20'000 && store_->stats().dropped_blocks < 2; ++tries) {
    store_->wait();
    (void)store_->find({});
  }
  calls_.sync = nullptr;
  EXPECT_EQ(store_->stats().dropped_blocks, 2);
  EXPECT_EQ(store_->stats().written_blocks, 0);
  EXPECT_EQ(store_->stats().blocks, 0);
  put(std::span(chain_).first(2));
  ASSERT_TRUE(stored(2));
  EXPECT_EQ(load(std::span(chain_).first(2), into_).blocks, 2);
}

INSTANTIATE_TEST_SUITE_P(Both, SsdFigures, ::testing::Bool(),
                         [](const auto& one) { return std::string(one.param ? "Uring" : "Plain"); });

TEST(SsdStoreMemory, CountsIndexWritesAndReads) {
  constexpr int64_t kPage = 4096, kSlot = 2 * kPage;
  const KvLayout layout{find_format("f16"), 4, {{1, 8}, {2, 8}}};
  const auto memory = [&](int64_t slots, int64_t write_bytes) {
    return ssd_store_memory(
               layout,
               {.path = {}, .bytes = kPage + slots * (kPage + kSlot), .identity_text = {}, .write_bytes = write_bytes})
        .value();
  };
  constexpr int64_t kReads = int64_t{16} << 20, kOfABlock = 512 + 4 * 4 + 8 * 2;
  EXPECT_EQ(memory(1, 1 << 20), kOfABlock + (1 << 20) + kSlot + 64 * kPage + kReads);
  EXPECT_EQ(memory(1000, 1 << 20), 1000 * kOfABlock + (1 << 20) + kSlot + 64 * kPage + kReads);
  EXPECT_EQ(memory(1000, 0), 1000 * kOfABlock + kSlot + kSlot + 64 * kPage + kReads)
      << "there is always a buffer for one block";
  EXPECT_EQ(ssd_store_memory({find_format("f16"), 8, {{1, 8}}},
                             {.path = {}, .bytes = 3 * kPage, .identity_text = {}, .write_bytes = 0})
                .value(),
            512 + 4 * 8 + 8 + 2 * kPage + 64 * kPage + kReads);
  const auto refused = ssd_store_memory(layout, {.path = {}, .bytes = kPage, .identity_text = {}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
}

}  // namespace
}  // namespace millrace
