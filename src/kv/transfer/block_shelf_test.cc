#include "kv/transfer/block_shelf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

namespace millrace {
namespace {

constexpr StoreIdentity kShelfModel{1, 1};
constexpr int64_t kShelfImage = 1000;

class Shelf : public ::testing::Test {
 protected:
  void open(int64_t bytes, double share = 1, double lease_seconds = 60) {
    auto made = BlockShelf::create({bytes, share, lease_seconds});
    ASSERT_TRUE(made.ok()) << made.error().message;
    shelf_ = std::move(*made);
  }
  static ShelfBlock block(uint64_t number) { return {kShelfModel, {number, 77}}; }
  // Block `number`, whose previous block is the one before it; the first one is of the tenant.
  bool put(uint64_t number, uint64_t first = 1, uint64_t tenant = 0, int64_t bytes = kShelfImage) {
    const PrefixKey parent = number == first ? PrefixKey{tenant, 0} : PrefixKey{number - 1, 77};
    return shelf_->put(block(number), parent, bytes, [&](std::span<uint8_t> image) {
      std::memset(image.data(), static_cast<int>(number), image.size());
    });
  }
  bool read(uint64_t lease, uint64_t number) {
    bool same = false;
    const bool there = shelf_->read(lease, block(number), [&](std::span<const uint8_t> image, uint64_t) {
      same = std::ranges::all_of(image, [&](uint8_t one) { return one == static_cast<uint8_t>(number); });
    });
    EXPECT_TRUE(!there || same);
    return there;
  }
  void expect_balance() {
    const ShelfStats s = shelf_->stats();
    EXPECT_EQ(s.free + s.held + s.idle, s.capacity);
    EXPECT_GE(std::min({s.free, s.held, s.idle}), 0);
  }
  std::unique_ptr<BlockShelf> shelf_;
};

TEST_F(Shelf, AReaderNeedsALeaseOnTheBlock) {
  open(1 << 20);
  for (uint64_t i = 1; i <= 4; ++i) EXPECT_TRUE(put(i));
  const std::vector<PrefixKey> keys = {{1, 77}, {2, 77}};
  const uint64_t lease = shelf_->lease(keys);
  EXPECT_TRUE(read(lease, 1));
  EXPECT_TRUE(read(lease, 2));
  EXPECT_TRUE(read(lease, 3)) << "its previous block is covered, as that of a state's piece is";
  EXPECT_FALSE(read(lease, 4));
  EXPECT_FALSE(read(lease + 2, 1));
  EXPECT_FALSE(read(0, 1));
  EXPECT_EQ(shelf_->stats().refused_reads, 3);
  shelf_->end(lease);
  EXPECT_FALSE(read(lease, 1));
  expect_balance();
}

TEST_F(Shelf, HeldBlocksStayAndOthersAreEvictedOldestFirst) {
  open(4 * kShelfImage);
  for (uint64_t i = 1; i <= 4; ++i) EXPECT_TRUE(put(i));
  const std::vector<PrefixKey> keys = {{1, 77}};
  const uint64_t lease = shelf_->lease(keys);  // holds 1, and 2 behind it
  EXPECT_EQ(shelf_->stats().held, 2 * kShelfImage);
  EXPECT_TRUE(put(5));
  EXPECT_FALSE(shelf_->holds(block(3)));
  EXPECT_TRUE(put(6));
  EXPECT_FALSE(shelf_->holds(block(4)));
  EXPECT_TRUE(read(lease, 1));
  shelf_->done(lease, block(1));
  shelf_->done(lease, block(1));  // once only
  EXPECT_EQ(shelf_->stats().held, kShelfImage);
  EXPECT_TRUE(read(lease, 1)) << "the lease goes on: another node may take over";
  expect_balance();
}

TEST_F(Shelf, WithoutRoomABlockIsRefused) {
  open(2 * kShelfImage);
  EXPECT_TRUE(put(1));
  EXPECT_TRUE(put(2));
  const std::vector<PrefixKey> keys = {{1, 77}, {2, 77}};
  const uint64_t lease = shelf_->lease(keys);
  EXPECT_FALSE(put(3));
  EXPECT_FALSE(put(4, 4, 0, 3 * kShelfImage));
  EXPECT_EQ(shelf_->stats().refused_blocks, 2);
  shelf_->end(lease);
  EXPECT_TRUE(put(3));
  expect_balance();
}

TEST_F(Shelf, ALeaseEndsByTimeAndReadingRenewsIt) {
  open(1 << 20, 1, 0.2);
  EXPECT_TRUE(put(1));
  const std::vector<PrefixKey> keys = {{1, 77}};
  const uint64_t lease = shelf_->lease(keys);
  for (int i = 0; i < 6; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_TRUE(read(lease, 1)) << i;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(read(lease, 1));
  const ShelfStats stats = shelf_->stats();
  EXPECT_EQ(stats.expired_leases, 1);
  EXPECT_EQ(stats.leases, 0);
  EXPECT_EQ(stats.held, 0);
  expect_balance();
}

// A reader of every block may be silent for longer than a lease, and blocks that it asked for and did not read are let
// go although it reads others.
TEST_F(Shelf, AReaderOfEveryBlockHoldsEachForATime) {
  open(1 << 20, 1, 0.1);
  const uint64_t lease = shelf_->open_lease();
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  EXPECT_FALSE(shelf_->hold(lease, block(1))) << "it is not there yet";
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_TRUE(put(i));
  EXPECT_TRUE(shelf_->hold(lease, block(1)));
  EXPECT_EQ(shelf_->stats().held, kShelfImage);
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_TRUE(read(lease, 2)) << i;
    shelf_->done(lease, block(2));
  }
  EXPECT_EQ(shelf_->stats().held, 0) << "block 1 was asked for and not read";
  EXPECT_EQ(shelf_->stats().leases, 1);
  EXPECT_TRUE(read(lease, 3));
  expect_balance();
  shelf_->end(lease);
  EXPECT_EQ(shelf_->stats().leases, 0);
  EXPECT_EQ(shelf_->stats().held, 0);
}

TEST_F(Shelf, ATenantTakesNoMoreThanItsShare) {
  open(10 * kShelfImage, 0.5);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_TRUE(put(i, 1, 11));
  for (uint64_t i = 101; i <= 120; ++i) EXPECT_TRUE(put(i, 101, 22));
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_TRUE(shelf_->holds(block(i))) << i;
  EXPECT_EQ(shelf_->stats().blocks, 8);
  EXPECT_TRUE(shelf_->holds(block(120)));
  EXPECT_FALSE(put(200, 200, 33, 6 * kShelfImage)) << "more than a share";
  expect_balance();
}

TEST_F(Shelf, RandomUseKeepsTheBalance) {
  open(50 * kShelfImage, 0.6, 0.05);
  std::mt19937 random(5);
  std::vector<uint64_t> leases = {shelf_->open_lease()};
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t number = 1 + random() % 200;
    switch (random() % 6) {
      case 0:
      case 1: put(number, number, random() % 3, 1 + static_cast<int64_t>(random() % (4 * kShelfImage))); break;
      case 2: read(leases[random() % leases.size()], number); break;
      case 3: shelf_->done(leases[random() % leases.size()], block(number)); break;
      case 4: {
        const std::vector<PrefixKey> keys = {{number, 77}, {number + 1, 77}};
        leases.push_back(shelf_->lease(keys));
        break;
      }
      default: shelf_->end(leases[random() % leases.size()]);
    }
    if (step % 50 == 0) expect_balance();
    if (HasFailure()) return;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(shelf_->stats().held, 0);
  EXPECT_EQ(shelf_->stats().leases, 0);
}

}  // namespace
}  // namespace millrace
