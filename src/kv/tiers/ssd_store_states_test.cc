// Recurrent states in the prefix store's file: they continue a prefix only with all blocks before them, survive a
// restart, and are found damaged by their checksums.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "kv/tiers/recurrent_pool_test.h"
#include "kv/tiers/ssd_store.h"
#include "kv/tiers/system_calls_test.h"

namespace millrace {
namespace {

// Whether some layers have attention, and the order of the file.
class SsdStates : public ::testing::TestWithParam<std::tuple<bool, StoreOrder>> {
 protected:
  static constexpr StateId kFrom = 1, kInto = 2;

  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "ssd_states_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    open();
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  static bool hybrid() { return std::get<0>(GetParam()); }
  std::string path() const { return folder_ + "/store"; }
  StoreGeometry geometry(int64_t slots) const {
    const StoreGeometry one = *StoreGeometry::create(pool_.layout(), int64_t{1} << 30, std::get<1>(GetParam()));
    return *StoreGeometry::create(pool_.layout(), kStorePage + slots * (one.record_bytes + one.slot_bytes),
                                  std::get<1>(GetParam()));
  }
  void open(int64_t slots = 32, int64_t write_bytes = int64_t{32} << 20) {
    store_.reset();
    SsdStoreOptions options;
    options.path = path();
    options.bytes = geometry(slots).file_bytes();
    options.identity_text = "a model";
    options.order = std::get<1>(GetParam());
    options.scan_seconds = 60;
    options.write_bytes = write_bytes;
    auto made = make_ssd_store(pool_, options);
    ASSERT_TRUE(made.ok()) << made.error().message;
    store_ = std::move(*made);
    pieces_ = store_->stats().state_blocks;
  }
  void put_block(size_t i) {
    fill_block(pool_, 0, static_cast<uint8_t>(10 + i));
    store_->put(chain_[i], 0, true);
    fill_block(pool_, 0, 1);  // the bytes were copied
  }
  void put_state(size_t behind) {
    fill_state(pool_, kFrom, static_cast<int64_t>(20 + behind));
    store_->put_state({chain_[behind].key, kFrom}, true);
    fill_state(pool_, kFrom, 1);
  }
  // Waits until all that was put is written.
  void write() {
    const int64_t written = store_->stats().written_blocks;
    store_->flush();
    for (int tries = 0; tries < 20'000 && store_->stats().written_blocks == written; ++tries) settle();
    for (int64_t last = -1; last != store_->stats().blocks;) {
      last = store_->stats().blocks;
      for (int i = 0; i < 20; ++i) settle();
    }
  }
  void settle() {
    store_->erase(store_->lookup({}));  // collects completed writes
    store_->wait();
  }
  int64_t found(int64_t held = 0, size_t links = 5) {
    const TierTicket ticket = store_->lookup(std::span(chain_).first(links), held);
    const int64_t blocks = store_->poll_lookup(ticket).blocks;
    store_->erase(ticket);
    return blocks;
  }
  // Loads the blocks behind the first `held`, and the state behind the first `blocks`.
  LoadProgress load(size_t held, size_t blocks) {
    const std::vector<BlockId> into = {1, 2, 3, 4, 5};
    for (const BlockId block : into) fill_block(pool_, block, 2);
    fill_state(pool_, kInto, 2);
    const auto behind = std::span(chain_).subspan(held, blocks - held);
    const TierTicket ticket =
        store_->load(behind, std::span(into).first(behind.size()), {chain_[blocks - 1].key, kInto});
    EXPECT_EQ(store_->loading_blocks(), std::ssize(behind) + (stored_ ? pieces_ : 0));
    LoadProgress progress = store_->poll(ticket);
    for (; progress.state == TierState::busy; progress = store_->poll(ticket)) store_->wait();
    EXPECT_EQ(store_->loading_blocks(), 0);
    store_->erase(ticket);
    if (progress.state_arrived) {
      EXPECT_TRUE(state_is(pool_, kInto, static_cast<int64_t>(20 + blocks - 1)));
      for (size_t i = 0; i < behind.size(); ++i)
        EXPECT_TRUE(block_is(pool_, into[i], static_cast<uint8_t>(10 + held + i))) << i;
    }
    return progress;
  }

  SystemCalls calls_;
  KvPool pool_ = hybrid() ? hybrid_pool() : recurrent_pool();
  std::string folder_;
  std::unique_ptr<PrefixStore> store_;
  int64_t pieces_ = 0;
  bool stored_ = true;  // the store has the states that are loaded
  const std::vector<TokenId> tokens_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  const std::vector<ChainLink> chain_ = prefix_chain(tokens_, kStateBlock, 0);
};

TEST_P(SsdStates, APrefixEndsAtAStateWithAllBlocksBeforeIt) {
  EXPECT_EQ(pieces_, hybrid() ? 3 : 2);
  for (const size_t i : {0, 1, 2}) put_block(i);
  write();
  EXPECT_EQ(found(), 0) << "there is no state";
  put_state(1);
  put_state(4);
  write();
  EXPECT_EQ(store_->stats().blocks, 3 + 2 * pieces_);
  EXPECT_EQ(found(), 2) << "blocks 3 and 4 are missing";
  EXPECT_EQ(found(2), 2) << "the caller has the blocks of a state that is stored";
  EXPECT_EQ(found(5), 5);
  EXPECT_EQ(found(9), 5) << "more blocks than the chain has";
  put_block(3);
  write();
  EXPECT_EQ(found(), 2);
  put_block(4);
  write();
  EXPECT_EQ(found(), 5);
}

TEST_P(SsdStates, BlocksAndStatesReturnAfterARestart) {
  for (const size_t i : {4, 3, 2, 1, 0}) put_block(i);
  put_state(2);
  put_state(4);
  for (int i = 0; i < 2; ++i) {
    open();
    EXPECT_EQ(found(), 5) << "it is also written when the store is closed";
    EXPECT_TRUE(load(0, 5).state_arrived);
    EXPECT_EQ(load(0, 5).blocks, 5);
    EXPECT_TRUE(load(3, 5).state_arrived);
    EXPECT_TRUE(load(5, 5).state_arrived) << "the state alone";
    EXPECT_TRUE(load(1, 3).state_arrived);
    stored_ = false;
    EXPECT_FALSE(load(0, 2).state_arrived) << "there is no state behind these";
    stored_ = true;
    EXPECT_EQ(store_->stats().corrupt_blocks, 0);
  }
  const int64_t slot = geometry(32).slot_bytes;
  EXPECT_EQ(store_->stats().read_bytes, store_->stats().read_blocks * slot);
}

TEST_P(SsdStates, StoredStatesAreNotWrittenAgain) {
  put_block(0);
  put_state(0);
  write();
  EXPECT_EQ(store_->stats().written_blocks, 1 + pieces_);
  EXPECT_EQ(store_->stats().written_bytes, (1 + pieces_) * geometry(32).slot_bytes);
  put_state(0);
  for (int i = 0; i < 20; ++i) settle();
  EXPECT_EQ(store_->stats().written_blocks, 1 + pieces_);
}

// A bit of every piece in turn: the load brings no state, and the next one finds none, until it is stored again.
TEST_P(SsdStates, DamagedPiecesAreFound) {
  for (const size_t i : {0, 1}) put_block(i);
  put_state(1);
  write();
  const StoreGeometry g = geometry(32);
  const int64_t layer = hybrid() ? 1 : 0;
  store_.reset();
  int64_t lost = 0;
  for (int64_t slot = 0; slot < 2 + pieces_; ++slot) {
    const int fd = ::open(path().c_str(), O_RDWR);
    uint8_t byte = 0;
    ASSERT_EQ(::pread(fd, &byte, 1, g.place(slot, layer) + 7), 1);
    const uint8_t changed = byte ^ 4;
    ASSERT_EQ(::pwrite(fd, &changed, 1, g.place(slot, layer) + 7), 1);
    ::close(fd);
    open();
    ASSERT_EQ(found(), 2);
    EXPECT_FALSE(load(0, 2).state_arrived) << slot;
    EXPECT_EQ(store_->stats().corrupt_blocks, 1) << slot;
    EXPECT_LT(found(2), 3);
    lost += found(2) == 0;
    for (const size_t i : {0, 1}) put_block(i);
    put_state(1);
    write();
    EXPECT_EQ(found(), 2) << slot;
    EXPECT_TRUE(load(0, 2).state_arrived) << slot;
    store_.reset();
  }
  EXPECT_EQ(lost, pieces_) << "damaged blocks leave the state usable for callers that have them";
}

// The pieces that were used least recently make room; what is left of a state is not found.
TEST_P(SsdStates, AFullFileDropsTheOldestOnes) {
  open(2 + pieces_);
  put_block(0);
  put_state(0);
  write();
  EXPECT_EQ(found(), 1);
  put_block(1);
  put_state(1);
  write();
  EXPECT_EQ(store_->stats().blocks, 2 + pieces_);
  EXPECT_EQ(found(0, 1), 0) << "a piece of the first state is gone";
  EXPECT_EQ(found(1, 1), 0);
  EXPECT_EQ(found(), 2);
}

TEST_P(SsdStates, AFileWithoutRoomForAStateIsRefused) {
  store_.reset();
  SsdStoreOptions options;
  options.path = path();
  options.order = std::get<1>(GetParam());
  options.bytes = geometry(1 + pieces_).file_bytes() - 1;
  const auto memory = ssd_store_memory(pool_.layout(), options);
  ASSERT_FALSE(memory.ok());
  EXPECT_TRUE(
      memory.error().message.starts_with("KV store: one block of 4 tokens and a copy of the recurrent states "
                                         "take "))
      << memory.error().message;
  EXPECT_FALSE(make_ssd_store(pool_, options).ok());
  ++options.bytes;
  EXPECT_TRUE(make_ssd_store(pool_, options).ok());
}

// Without waiting, a state is written whole or not at all. There are buffers for two of them and a block.
TEST_P(SsdStates, AStateWithoutBuffersIsDropped) {
  open(32, 1);
  std::promise<void> go;
  calls_.sync = [gate = go.get_future().share()] { return gate.wait(), 0; };
  for (size_t i = 0; i < 3; ++i) {
    fill_state(pool_, kFrom, static_cast<int64_t>(20 + i));
    store_->put_state({chain_[i].key, kFrom}, false);
    EXPECT_EQ(store_->stats().dropped_blocks, i < 2 ? 0 : pieces_);
  }
  EXPECT_TRUE(store_->has_room());
  store_->put_state({chain_[1].key, kFrom}, false);
  EXPECT_EQ(store_->stats().dropped_blocks, pieces_) << "it is being written";
  go.set_value();
  write();
  calls_.sync = nullptr;
  EXPECT_EQ(store_->stats().blocks, 2 * pieces_);
  EXPECT_EQ(found(5), 2);
}

INSTANTIATE_TEST_SUITE_P(Layouts, SsdStates,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(StoreOrder::arrival, StoreOrder::importance)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "Hybrid" : "Recurrent") +
                                  (std::get<1>(test.param) == StoreOrder::arrival ? "" : "ByImportance");
                         });

}  // namespace
}  // namespace millrace
