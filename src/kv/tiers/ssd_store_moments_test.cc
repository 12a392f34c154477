// The prefix store while its file is still being scanned, while its disk is busy, and while it packs blocks.
#include <fmt/format.h>

#include <future>

#include "kv/tiers/ssd_store_figures_test.h"

namespace millrace {
namespace {

class SsdMoments : public SsdFigures {};

// Sequence numbers continue after the existing records; blocks written before all records are known are numbered by the
// clock.
TEST_P(SsdMoments, WritesAreNumberedAboveAllExistingRecords) {
  open(10);
  put(std::span(chain_).first(2));
  open(10);
  put(std::span(chain_).first(3));
  EXPECT_EQ(record(10, 0).sequence, 1u);
  EXPECT_EQ(record(10, 1).sequence, 2u);
  EXPECT_EQ(record(10, 2).sequence, 3u);
}

TEST_P(SsdMoments, StoreIsUsableDuringTheScan) {
  constexpr int64_t kSlots = 1030;  // six more than one read covers
  calls_.allocate = [] { return EOPNOTSUPP; };
  open(kSlots);
  put(std::span(chain_).first(2));
  store_.reset();
  std::promise<void> there, go;
  calls_.read = [&](off_t at) {
    if (at == kPage + 1024 * kPage) there.set_value(), go.get_future().wait();
    return 0;
  };
  open(kSlots, {.scan_seconds = 0.001});
  there.get_future().wait();
  EXPECT_GE(store_->stats().unread_slots, 6);
  EXPECT_EQ(store_->find(chain_), 2) << "records scanned so far are found";
  EXPECT_EQ(store_->stats().unread_slots, 6);
  EXPECT_EQ(store_->stats().blocks, 2);
  fill(0, 12);
  store_->put(chain_[2], 0, true);
  go.set_value();
  for (int tries = 0; tries < 20'000 && store_->stats().unread_slots > 0; ++tries) {
    store_->wait();
    (void)store_->find({});
  }
  EXPECT_EQ(store_->stats().unread_slots, 0);
  ASSERT_TRUE(stored(3));
  EXPECT_GT(record(kSlots, 2).sequence, 1'000'000'000'000'000u) << "microseconds since 1970";
}

TEST_P(SsdMoments, RecordsThatFailToReadLaterAreSkipped) {
  constexpr int64_t kSlots = 1030;
  calls_.allocate = [] { return EOPNOTSUPP; };
  open(kSlots);
  put(std::span(chain_).first(2));
  store_.reset();
  std::promise<void> go;
  calls_.read = [&](off_t at) {
    if (at != kPage + 1024 * kPage) return 0;
    go.get_future().wait();
    return EIO;
  };
  open(kSlots, {.scan_seconds = 0.001});
  go.set_value();
  for (int tries = 0; tries < 20'000 && store_->stats().unread_slots > 0; ++tries) {
    store_->wait();
    (void)store_->find({});
  }
  EXPECT_EQ(store_->stats().capacity, 1024);
  EXPECT_EQ(store_->stats().unread_slots, 0);
  EXPECT_EQ(store_->find(chain_), 2);
}

TEST_P(SsdMoments, UnreadableFileIsRejected) {
  open(10);
  put(std::span(chain_).first(2));
  store_.reset();
  calls_.read = [](off_t at) { return at == kPage ? EIO : 0; };
  const auto refused = make(10, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  EXPECT_EQ(refused.error().message, fmt::format("KV store: {} cannot be read", path_));
}

// With eight write buffers, four blocks are packed at a time, and a flush packs the pending ones.
TEST_P(SsdMoments, PacksHalfTheBuffersAtATime) {
  struct Case {
    int64_t write_bytes;
    std::vector<float> masses;  // by slot
  };
  for (const Case& one : {Case{8 * kSlot, {4, 3, 2, 1, 8, 7, 6, 5}},
                          {9 * kSlot, {4, 3, 2, 1, 8, 7, 6, 5}},
                          {10 * kSlot - 1, {4, 3, 2, 1, 8, 7, 6, 5}},
                          {10 * kSlot, {5, 4, 3, 2, 1, 8, 7, 6}},
                          {kSlot, {1, 2, 3, 4, 5, 6, 7, 8}},
                          {1, {1, 2, 3, 4, 5, 6, 7, 8}},
                          {3 * kSlot, {1, 2, 3, 4, 5, 6, 7, 8}},
                          {int64_t{1} << 30, {8, 7, 6, 5, 4, 3, 2, 1}}}) {
    ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
    open(10, {.order = StoreOrder::importance, .write_bytes = one.write_bytes});
    auto chain = chain_;
    for (size_t i = 0; i < chain.size(); ++i) chain[i].importance = static_cast<float>(i + 1);
    put(chain);
    std::vector<float> masses;
    for (int64_t slot = 0; slot < 8; ++slot) masses.push_back(record(10, slot, StoreOrder::importance).importance);
    EXPECT_EQ(masses, one.masses) << one.write_bytes;
  }
}

TEST_P(SsdMoments, BlockWithoutASlotIsDropped) {
  open(5, {.order = StoreOrder::importance});
  put(chain_);
  EXPECT_EQ(store_->stats().dropped_blocks, 0);
  store_->flush();
  EXPECT_EQ(store_->stats().dropped_blocks, 3);
  store_->flush();
  EXPECT_EQ(store_->stats().dropped_blocks, 3);
  ASSERT_TRUE(stored(5));
  EXPECT_EQ(store_->find(chain_), 5);
  EXPECT_EQ(store_->stats().written_bytes, 5 * kSlot);
}

TEST_P(SsdMoments, NonBlockingPutDropsTheBlockWhenFull) {
  open(10, {.order = StoreOrder::importance, .write_bytes = 8 * kSlot});
  EXPECT_TRUE(store_->has_room());
  std::promise<void> go;
  auto open_gate = go.get_future().share();
  calls_.sync = [open_gate] { return open_gate.wait(), 0; };
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(store_->has_room()) << i;
    store_->put(chain_[i], 0, false);
  }
  EXPECT_FALSE(store_->has_room());
  const std::vector<TokenId> more = prompt(1000, 1);
  store_->put(prefix_chain(more, kBlock, 0)[0], 0, false);
  EXPECT_EQ(store_->stats().dropped_blocks, 1);
  go.set_value();
  EXPECT_TRUE(stored(8));
  EXPECT_TRUE(store_->has_room());
  EXPECT_EQ(store_->stats().dropped_blocks, 1);
  calls_.sync = nullptr;
}

INSTANTIATE_TEST_SUITE_P(Both, SsdMoments, ::testing::Bool(),
                         [](const auto& one) { return std::string(one.param ? "Uring" : "Plain"); });

}  // namespace
}  // namespace millrace
