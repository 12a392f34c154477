// The prefix store's accounts, to the block and to the byte: what was written, read, dropped and found damaged, and the
// memory that it says it may take.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <future>

#include "kv/tiers/block_io.h"
#include "kv/tiers/block_runs.h"
#include "kv/tiers/ssd_store.h"
#include "kv/tiers/store_reader.h"
#include "kv/tiers/system_calls_test.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 4, kPage = 4096, kSlot = 2 * kPage;  // two layers of a page each

std::vector<TokenId> prompt(TokenId first, int64_t blocks) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < blocks * kBlock; ++i) tokens.push_back(static_cast<TokenId>(first + i));
  return tokens;
}

class Figures : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "/ssd_figures_XXXXXX";
    ::close(::mkstemp(path_.data()));
    auto pool = KvPool::create({find_format("f16"), kBlock, {{1, 8}, {2, 8}}}, 12);
    ASSERT_TRUE(pool.ok());
    pool_ = std::make_unique<KvPool>(std::move(*pool));
  }
  void TearDown() override {
    store_.reset();
    ::unlink(path_.c_str());
  }
  Result<std::unique_ptr<PrefixStore>> make(int64_t slots, SsdStoreOptions options) {
    store_.reset();
    options.path = path_;
    options.bytes = kPage + slots * (kPage + kSlot);
    options.uring = GetParam();
    options.direct = false;
    options.scan_seconds = options.scan_seconds == 1 ? 60 : options.scan_seconds;
    return make_ssd_store(*pool_, options);
  }
  void open(int64_t slots, SsdStoreOptions options = {}) {
    auto made = make(slots, std::move(options));
    ASSERT_TRUE(made.ok()) << made.error().message;
    store_ = std::move(*made);
  }
  void fill(BlockId block, uint8_t value) {
    for (int64_t layer = 0; layer < 2; ++layer) copy_in(*pool_, layer, block, std::vector<uint8_t>(layer ? 256 : 128, value).data());
  }
  bool filled(BlockId block, uint8_t value) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      std::vector<uint8_t> bytes(layer ? 256 : 128);
      copy_out(*pool_, layer, block, bytes.data());
      if (bytes != std::vector<uint8_t>(bytes.size(), value)) return false;
    }
    return true;
  }
  // Block i of the chain holds the value 10 + i.
  void put(std::span<const ChainLink> chain) {
    for (size_t i = 0; i < chain.size(); ++i) {
      fill(0, static_cast<uint8_t>(10 + i));
      store_->put(chain[i], 0, true);
    }
  }
  // Until so many blocks are stored; false: they never are.
  bool stored(int64_t blocks) {
    for (int tries = 0; tries < 20'000; ++tries) {
      (void)store_->find({});
      if (store_->stats().blocks == blocks) return true;
      store_->wait();
    }
    return false;
  }
  LoadProgress load(std::span<const ChainLink> chain, std::span<const BlockId> into) {
    const TierTicket ticket = store_->load(chain, into);
    store_->wait_layer(ticket, 2);
    const LoadProgress progress = store_->poll(ticket);
    store_->erase(ticket);
    return progress;
  }
  StoreRecord record(int64_t slots, int64_t slot, StoreOrder order = StoreOrder::arrival) {
    store_.reset();
    auto file = StoreFile::open({path_, kPage + slots * (kPage + kSlot), "", false, 4, order}, pool_->layout());
    EXPECT_FALSE(file->made_anew());
    std::vector<uint8_t> bytes(kPage);
    StoreRecord out;
    EXPECT_TRUE(move_bytes(file->fd(), {false, file->geometry().record_at(slot), bytes.data(), kPage, 0}));
    EXPECT_EQ(decode_record(file->geometry(), file->identity(), slot, bytes, out), RecordState::good) << slot;
    return out;
  }
  void damage(int64_t slots, int64_t slot) {
    const auto g = *StoreGeometry::create(pool_->layout(), kPage + slots * (kPage + kSlot));
    const int fd = ::open(path_.c_str(), O_WRONLY);
    const uint8_t wrong = 99;
    ASSERT_EQ(::pwrite(fd, &wrong, 1, g.place(slot, 1)), 1);
    ::close(fd);
  }
  SystemCalls calls_;
  std::string path_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<PrefixStore> store_;
  const std::vector<TokenId> tokens_ = prompt(1, 8);
  const std::vector<ChainLink> chain_ = prefix_chain(tokens_, kBlock, 0);
  const std::vector<BlockId> into_ = {1, 2, 3, 4, 5, 6, 7, 8};
};

TEST_P(Figures, OfWritesAndReads) {
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
  put(std::span(chain_).first(3));  // once more changes nothing
  store_->flush();
  ASSERT_TRUE(stored(3));
  EXPECT_EQ(store_->stats().written_blocks, 3);
}

TEST_P(Figures, ALoadHasAsManyBlocksAsBothListsHave) {
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
    store_->wait_layer(ticket, 0);
    EXPECT_GE(store_->poll(ticket).layers, 1);
    store_->wait_layer(ticket, 2);
    EXPECT_EQ(store_->poll(ticket).blocks, one.expected);
    EXPECT_EQ(store_->loading_blocks(), 0) << "told of its end";
    store_->erase(ticket);
    EXPECT_EQ(store_->loading_blocks(), 0);
    for (size_t i = 0; i < into_.size(); ++i) EXPECT_TRUE(filled(into_[i], static_cast<uint8_t>(static_cast<int64_t>(i) < one.expected ? 10 + i : 1))) << i;
  }
  store_->wait_layer(77, 0);  // no such load: no wait
  store_->erase(77);
  EXPECT_EQ(store_->poll(77).state, TierState::failed);
  EXPECT_EQ(store_->stats().read_blocks, 12);
}

TEST_P(Figures, ADamagedBlockIsCountedOnceHoweverManyReadIt) {
  open(10);
  put(std::span(chain_).first(3));
  ASSERT_TRUE(stored(3));
  open(10);
  ASSERT_EQ(store_->stats().blocks, 3);
  const int64_t slot_of_1 = 1;  // slots were taken in the order of the puts
  damage(10, slot_of_1);
  const TierTicket first = store_->load(std::span(chain_).first(3), into_), second = store_->load(std::span(chain_).first(3), std::span(into_).subspan(4));
  for (const TierTicket ticket : {first, second}) {
    store_->wait_layer(ticket, 2);
    EXPECT_EQ(store_->poll(ticket).blocks, 1) << "whole ones before the damaged one";
    EXPECT_EQ(store_->poll(ticket).state, TierState::ready);
  }
  EXPECT_EQ(store_->stats().corrupt_blocks, 1);
  EXPECT_EQ(store_->stats().read_blocks, 4);
  EXPECT_EQ(store_->stats().read_bytes, 4 * kSlot);
  EXPECT_EQ(store_->stats().blocks, 2);
  EXPECT_EQ(store_->find(chain_), 1);
}

// Blocks that were there when the file was opened are compared when they are put, once, and written only where damaged.
TEST_P(Figures, WhatWasStoredIsComparedOnce) {
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
  EXPECT_EQ(store_->stats().written_blocks, 1) << "all three were seen to be whole";
  EXPECT_EQ(load(std::span(chain_).first(3), into_).blocks, 0);
  EXPECT_EQ(store_->stats().corrupt_blocks, 3);
}

TEST_P(Figures, WhatWasReadWholeIsNotCompared) {
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

TEST_P(Figures, ABlockThatIsBeingReadIsNotCompared) {
  open(10);
  put(std::span(chain_).first(1));
  open(10);
  const TierTicket ticket = store_->load(std::span(chain_).first(1), into_);
  put(std::span(chain_).first(1));
  EXPECT_TRUE(store_->holds(chain_[0]));
  store_->wait_layer(ticket, 2);
  EXPECT_EQ(store_->poll(ticket).blocks, 1);
  EXPECT_TRUE(store_->has_room());
  EXPECT_EQ(store_->stats().written_blocks, 0);
}

TEST_P(Figures, AFailedSyncDropsTheBlocks) {
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

// Numbers go on where the records end; what is written before all of these are known is numbered by the clock.
TEST_P(Figures, WritesAreNumberedAboveAllThatTheFileHolds) {
  open(10);
  put(std::span(chain_).first(2));
  open(10);
  put(std::span(chain_).first(3));
  EXPECT_EQ(record(10, 0).sequence, 1u);
  EXPECT_EQ(record(10, 1).sequence, 2u);
  EXPECT_EQ(record(10, 2).sequence, 3u);
}

TEST_P(Figures, BeforeAllRecordsAreKnownTheStoreIsOpen) {
  constexpr int64_t kSlots = 1030;  // six more than are read at once
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
  EXPECT_EQ(store_->find(chain_), 2) << "what was read by now is found";
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

TEST_P(Figures, WhatCannotBeReadLaterIsLeftOut) {
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

TEST_P(Figures, AFileThatCannotBeReadIsRefused) {
  open(10);
  put(std::span(chain_).first(2));
  store_.reset();
  calls_.read = [](off_t at) { return at == kPage ? EIO : 0; };
  const auto refused = make(10, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  EXPECT_EQ(refused.error().message, fmt::format("KV store: {} cannot be read", path_));
}

// With room for eight blocks on their way, four are packed at a time, and a flush packs what is there.
TEST_P(Figures, HalfTheBuffersArePackedTogether) {
  struct Case {
    int64_t write_bytes;
    std::vector<float> masses;  // by slot
  };
  for (const Case& one : {Case{8 * kSlot, {4, 3, 2, 1, 8, 7, 6, 5}}, {9 * kSlot, {4, 3, 2, 1, 8, 7, 6, 5}}, {10 * kSlot - 1, {4, 3, 2, 1, 8, 7, 6, 5}},
                          {10 * kSlot, {5, 4, 3, 2, 1, 8, 7, 6}}, {kSlot, {1, 2, 3, 4, 5, 6, 7, 8}}, {1, {1, 2, 3, 4, 5, 6, 7, 8}}, {3 * kSlot, {1, 2, 3, 4, 5, 6, 7, 8}},
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

TEST_P(Figures, WhatFindsNoSlotIsDropped) {
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

TEST_P(Figures, WithoutRoomABlockIsDroppedWhereOneDoesNotWait) {
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

INSTANTIATE_TEST_SUITE_P(Both, Figures, ::testing::Bool(), [](const auto& one) { return std::string(one.param ? "Uring" : "Plain"); });

TEST(SsdStoreMemory, IsOfTheIndexTheWritesAndTheReads) {
  const KvLayout layout{find_format("f16"), 4, {{1, 8}, {2, 8}}};
  const auto memory = [&](int64_t slots, int64_t write_bytes) {
    return ssd_store_memory(layout, {.path = {}, .bytes = kPage + slots * (kPage + kSlot), .identity_text = {}, .write_bytes = write_bytes}).value();
  };
  constexpr int64_t kReads = int64_t{16} << 20, kOfABlock = 512 + 4 * 4 + 8 * 2;
  EXPECT_EQ(memory(1, 1 << 20), kOfABlock + (1 << 20) + kSlot + 64 * kPage + kReads);
  EXPECT_EQ(memory(1000, 1 << 20), 1000 * kOfABlock + (1 << 20) + kSlot + 64 * kPage + kReads);
  EXPECT_EQ(memory(1000, 0), 1000 * kOfABlock + kSlot + kSlot + 64 * kPage + kReads) << "one block always may wait";
  EXPECT_EQ(ssd_store_memory({find_format("f16"), 8, {{1, 8}}}, {.path = {}, .bytes = 3 * kPage, .identity_text = {}, .write_bytes = 0}).value(),
            512 + 4 * 8 + 8 + 2 * kPage + 64 * kPage + kReads);
  const auto refused = ssd_store_memory(layout, {.path = {}, .bytes = kPage, .identity_text = {}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
}

}  // namespace
}  // namespace millrace
