// A prefix store of small blocks for tests of its statistics.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kv/tiers/block_io.h"
#include "kv/tiers/block_runs.h"
#include "kv/tiers/ssd_store.h"
#include "kv/tiers/store_file.h"
#include "kv/tiers/system_calls_test.h"

namespace millrace {

// The parameter: io_uring or plain calls.
class SsdFigures : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int64_t kBlock = 4, kPage = 4096, kSlot = 2 * kPage;  // two layers of a page each

  static std::vector<TokenId> prompt(TokenId first, int64_t blocks) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < blocks * kBlock; ++i) tokens.push_back(static_cast<TokenId>(first + i));
    return tokens;
  }
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
    for (int64_t layer = 0; layer < 2; ++layer)
      copy_in(*pool_, layer, block, std::vector<uint8_t>(layer ? 256 : 128, value).data());
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
  // Waits until that many blocks are stored; false on time-out.
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
    store_->wait_layer(ticket, 2, PrefixStore::kNoDeadline);
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

}  // namespace millrace
