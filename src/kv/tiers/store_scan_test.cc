// The scan of a store's records: what it finds, its progress, and read errors.
#include "kv/tiers/store_scan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <future>

#include "kv/tiers/block_io.h"
#include "kv/tiers/system_calls_test.h"

namespace millrace {
namespace {

constexpr int64_t kAtOnce = 1024;  // one-page records: 4 MiB

class Scan : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/store_scan_XXXXXX";
    ::close(::mkstemp(path_.data()));
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  // Sparse: only the records that a test writes take space.
  StoreFile open(int64_t slots) {
    calls_.allocate = [] { return EOPNOTSUPP; };
    auto file = StoreFile::open({path_, 4096 + slots * 8192, "test", false}, {find_format("f16"), 4, {{1, 8}}});
    EXPECT_TRUE(file.ok());
    EXPECT_EQ(file->geometry().capacity, slots);
    return std::move(*file);
  }
  static void write(const StoreFile& file, int64_t slot, bool damaged = false) {
    StoreRecord record;
    record.sequence = static_cast<uint64_t>(slot) + 100;
    record.tokens = {static_cast<TokenId>(slot), 1, 2, 3};
    record.key = next_key(record.parent, record.tokens);
    record.sums = {5};
    std::vector<uint8_t> bytes(4096);
    encode_record(file.geometry(), file.identity(), slot, record, bytes);
    bytes[100] ^= damaged;
    ASSERT_TRUE(move_bytes(file.fd(), {true, file.geometry().record_at(slot), bytes.data(), 4096, 0}));
  }
  static std::vector<int64_t> slots_of(const StoreScan::Found& found) {
    std::vector<int64_t> out;
    for (const auto& [slot, record] : found.records) {
      EXPECT_EQ(record.tokens.front(), static_cast<TokenId>(slot));
      EXPECT_EQ(record.sequence, static_cast<uint64_t>(slot) + 100);
      out.push_back(slot);
    }
    return out;
  }
  SystemCalls calls_;
  std::string path_;
};

TEST_F(Scan, FindsValidRecordsAndCountsDamagedOnes) {
  for (const int64_t slots : {int64_t{1}, int64_t{5}, kAtOnce, kAtOnce + 1, 2 * kAtOnce, 2 * kAtOnce + 40}) {
    ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
    const StoreFile file = open(slots);
    write(file, 0);
    std::vector<int64_t> expected{0};
    if (slots > 4) {
      write(file, 3);
      write(file, 2, true);
      expected.push_back(3);
    }
    if (slots > 1) {
      write(file, slots - 1);
      expected.push_back(slots - 1);
    }
    int reads = 0;
    calls_.read = [&](off_t) { return ++reads, 0; };
    StoreScan scan(file);
    EXPECT_TRUE(scan.wait(60));
    EXPECT_EQ(reads, (slots + kAtOnce - 1) / kAtOnce);
    calls_.read = nullptr;
    const StoreScan::Found found = scan.take();
    EXPECT_EQ(slots_of(found), expected);
    EXPECT_EQ(found.slots, slots);
    EXPECT_EQ(found.bad, slots > 4);
    EXPECT_FALSE(found.failed);
    const StoreScan::Found rest = scan.take();
    EXPECT_TRUE(rest.records.empty()) << "each is returned once";
    EXPECT_EQ(rest.slots, slots);
    EXPECT_EQ(rest.bad, 0);
    EXPECT_FALSE(rest.failed);
    EXPECT_TRUE(scan.wait(0));
  }
}

TEST_F(Scan, ReportsProgressBeforeAReadError) {
  for (const int64_t good : {int64_t{0}, kAtOnce, 2 * kAtOnce}) {
    ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
    const StoreFile file = open(2 * kAtOnce + 7);
    for (const int64_t slot : {int64_t{1}, kAtOnce + 2, 2 * kAtOnce + 3}) write(file, slot);
    calls_.read = [&](off_t at) { return at >= file.geometry().record_at(good) ? EIO : 0; };
    StoreScan scan(file);
    EXPECT_TRUE(scan.wait(60)) << "it has ended";
    const StoreScan::Found found = scan.take();
    EXPECT_TRUE(found.failed);
    EXPECT_EQ(found.slots, good);
    EXPECT_EQ(std::ssize(slots_of(found)), good / kAtOnce);
    EXPECT_TRUE(scan.take().failed) << "and stays so";
    EXPECT_EQ(scan.take().slots, good);
    calls_.read = nullptr;
  }
}

// The second read waits for the test.
TEST_F(Scan, ReturnsRecordsIncrementally) {
  const StoreFile file = open(kAtOnce + 10);
  write(file, 4);
  write(file, kAtOnce + 1);
  std::promise<void> first, second;
  calls_.read = [&](off_t at) {
    if (at == file.geometry().record_at(kAtOnce)) first.set_value(), second.get_future().wait();
    return 0;
  };
  StoreScan scan(file);
  first.get_future().wait();
  EXPECT_FALSE(scan.wait(0));
  EXPECT_FALSE(scan.wait(0.001));
  StoreScan::Found found = scan.take();
  EXPECT_EQ(slots_of(found), (std::vector<int64_t>{4}));
  EXPECT_EQ(found.slots, kAtOnce);
  EXPECT_FALSE(found.failed);
  second.set_value();
  EXPECT_TRUE(scan.wait(60));
  found = scan.take();
  EXPECT_EQ(slots_of(found), (std::vector<int64_t>{kAtOnce + 1}));
  EXPECT_EQ(found.slots, kAtOnce + 10);
}

}  // namespace
}  // namespace millrace
