// The writer with blocks that are already stored, with failing syncs, and its buffers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#include "kv/tiers/store_writer.h"
#include "kv/tiers/system_calls_test.h"

namespace millrace {
namespace {

class WriterChecks : public ::testing::TestWithParam<std::tuple<bool, StoreOrder>> {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/writer_checks_XXXXXX";
    ::close(::mkstemp(path_.data()));
    auto file = StoreFile::open({path_, 1 << 20, "test", false, 4, std::get<1>(GetParam())},
                                {find_format("f16"), 4, {{2, 8}, {1, 16}, {1, 256}}});
    ASSERT_TRUE(file.ok());
    file_ = std::make_unique<StoreFile>(std::move(*file));
    writer_ = std::make_unique<StoreWriter>(*file_, 6, std::get<0>(GetParam()));
  }
  void TearDown() override {
    writer_.reset();
    file_.reset();
    ::unlink(path_.c_str());
  }
  const StoreGeometry& g() const { return file_->geometry(); }
  StoreWriter::Job job(int64_t slot, TokenId token, bool dirty = false) {
    StoreWriter::Job out;
    out.slot = slot, out.dirty = dirty;
    const std::vector<TokenId> tokens{token, 1, 2, 3};
    out.record = {static_cast<uint64_t>(token), next_key({2, 3}, tokens), {2, 3}, tokens, {}, 0};
    out.bytes = writer_->take(true);
    for (int64_t layer = 0; layer < g().layers(); ++layer)
      std::memset(out.bytes.data() + g().part_at[static_cast<size_t>(layer)], static_cast<int>(token + layer),
                  static_cast<size_t>(g().part_bytes[static_cast<size_t>(layer)]));
    return out;
  }
  StoreWriter::Job check(int64_t slot, TokenId token, std::vector<uint64_t> sums) {
    StoreWriter::Job out = job(slot, token, true);
    out.check = true;
    out.record.sums = std::move(sums);
    return out;
  }
  std::vector<StoreWriter::Written> ended(size_t count) {
    std::vector<StoreWriter::Written> out, some;
    for (int tries = 0; out.size() < count && tries < 20'000; ++tries) {
      writer_->collect(some);
      std::ranges::move(some, std::back_inserter(out));
      if (out.size() < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(out.size(), count);
    std::ranges::sort(out, {}, &StoreWriter::Written::slot);
    return out;
  }
  StoreWriter::Written one(StoreWriter::Job job) {
    writer_->push(std::move(job));
    return ended(1).at(0);
  }
  std::vector<uint8_t> read(int64_t at, int64_t bytes) const {
    std::vector<uint8_t> out(static_cast<size_t>(bytes));
    EXPECT_TRUE(move_bytes(file_->fd(), {false, at, out.data(), bytes, 0}));
    return out;
  }
  void flip(int64_t at) {
    auto byte = read(at, 1);
    byte[0] ^= 1;
    ASSERT_TRUE(move_bytes(file_->fd(), {true, at, byte.data(), 1, 0}));
  }
  bool holds(int64_t slot, TokenId token) const {
    StoreRecord found;
    if (decode_record(g(), file_->identity(), slot, read(g().record_at(slot), g().record_bytes), found) !=
        RecordState::good)
      return false;
    bool good = found.tokens.front() == token;
    for (int64_t layer = 0; layer < g().layers(); ++layer) {
      const auto part = read(g().place(slot, layer), g().part_bytes[static_cast<size_t>(layer)]);
      good = good && part == std::vector<uint8_t>(part.size(), static_cast<uint8_t>(token + layer));
      EXPECT_EQ(part_sum(found.key, layer, part), found.sums[static_cast<size_t>(layer)]);
    }
    return good;
  }
  SystemCalls calls_;
  std::string path_;
  std::unique_ptr<StoreFile> file_;
  std::unique_ptr<StoreWriter> writer_;
};

TEST_P(WriterChecks, ReportTheResultForEachBlock) {
  const StoreWriter::Written fresh = one(job(4, 20));
  EXPECT_EQ(fresh.slot, 4);
  EXPECT_TRUE(fresh.ok);
  EXPECT_FALSE(fresh.was_stored);
  EXPECT_FALSE(fresh.was_whole);
  ASSERT_EQ(fresh.sums.size(), 3u);
  EXPECT_TRUE(holds(4, 20));
  const StoreWriter::Written whole = one(check(4, 20, fresh.sums));
  EXPECT_TRUE(whole.ok);
  EXPECT_TRUE(whole.was_stored);
  EXPECT_TRUE(whole.was_whole);
  EXPECT_EQ(whole.sums, fresh.sums);
  EXPECT_TRUE(holds(4, 20));
}

TEST_P(WriterChecks, IntactBlockIsNotRewritten) {
  const auto sums = one(job(4, 20)).sums;
  int writes = 0, syncs = 0;
  calls_.write = [&](off_t) { return ++writes, EIO; };
  calls_.sync = [&] { return ++syncs, EIO; };
  EXPECT_TRUE(one(check(4, 20, sums)).was_whole);
  EXPECT_EQ(writes, 0);
  EXPECT_EQ(syncs, 0);
}

// Damage in any part, in the checksums, or a number of checksums of another layout.
TEST_P(WriterChecks, DamagedBlockIsRewritten) {
  const auto sums = one(job(4, 20)).sums;
  const auto healed = [&](std::vector<uint64_t> known) {
    const StoreWriter::Written written = one(check(4, 20, std::move(known)));
    EXPECT_TRUE(written.was_stored);
    EXPECT_TRUE(written.ok);
    EXPECT_EQ(written.sums, sums);
    EXPECT_TRUE(holds(4, 20));
    return !written.was_whole;
  };
  EXPECT_FALSE(healed(sums));
  for (int64_t layer = 0; layer < 3; ++layer) {
    flip(g().place(4, layer) + g().part_bytes[static_cast<size_t>(layer)] - 1);
    EXPECT_TRUE(healed(sums)) << layer;
    auto wrong = sums;
    ++wrong[static_cast<size_t>(layer)];
    EXPECT_TRUE(healed(wrong)) << layer;
  }
  EXPECT_TRUE(healed({}));
  EXPECT_TRUE(healed({sums[0], sums[1]}));
  EXPECT_TRUE(healed({sums[0], sums[1], sums[2], 0}));
  EXPECT_FALSE(healed(sums));
  calls_.read = [&](off_t at) { return at == g().place(4, 2) ? EIO : 0; };
  writer_->push(check(4, 20, sums));
  EXPECT_FALSE(ended(1)[0].was_whole) << "it could not be read";
  calls_.read = nullptr;
  EXPECT_TRUE(holds(4, 20));
}

// All in one batch: the first block delays the writer while the others are queued.
TEST_P(WriterChecks, IntactAndDamagedBlocksShareABatch) {
  const auto sums_1 = one(job(1, 21)).sums, sums_2 = one(job(2, 22)).sums;
  flip(g().place(2, 1));
  std::promise<void> there, go;
  int syncs = 0;
  calls_.sync = [&] {
    if (++syncs == 1) there.set_value(), go.get_future().wait();
    return 0;
  };
  writer_->push(job(0, 20));
  there.get_future().wait();
  writer_->push(check(1, 21, sums_1));
  writer_->push(check(2, 22, sums_2));
  writer_->push(job(3, 23));
  go.set_value();
  const auto done = ended(4);
  EXPECT_EQ(syncs, 3) << "a batch of one new block and one whose old record is erased first";
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(done[i].ok);
    EXPECT_EQ(done[i].was_stored, i == 1 || i == 2);
    EXPECT_EQ(done[i].was_whole, i == 1);
    EXPECT_TRUE(holds(static_cast<int64_t>(i), static_cast<TokenId>(20 + i))) << i;
  }
}

// Failure of each sync: only blocks that needed no write succeed.
TEST_P(WriterChecks, FailedSyncDropsTheBatch) {
  for (const int failing : {2, 3}) {  // the first sync is of the block that delays the writer
    const auto sums_5 = one(job(5, 25, true)).sums;
    one(job(6, 26, true));
    std::promise<void> there, go;
    int syncs = 0;
    calls_.sync = [&] {
      if (++syncs == 1) there.set_value(), go.get_future().wait();
      return syncs == failing ? EIO : 0;
    };
    writer_->push(job(failing + 10, 20));
    there.get_future().wait();
    writer_->push(job(6, 30, true));
    writer_->push(check(5, 25, sums_5));
    writer_->push(job(7, 31));
    go.set_value();
    const auto done = ended(4);
    calls_.sync = nullptr;
    EXPECT_TRUE(done[0].ok && done[0].was_whole) << done[0].slot;
    EXPECT_FALSE(done[1].ok) << failing;
    EXPECT_FALSE(done[2].ok);
    EXPECT_TRUE(done[3].ok) << "the one before";
    EXPECT_EQ(syncs, failing);
    EXPECT_TRUE(holds(5, 25));
    EXPECT_FALSE(holds(6, 26)) << "its record was erased first";
    EXPECT_FALSE(holds(6, 30));
    EXPECT_FALSE(holds(7, 31));
  }
}

TEST_P(WriterChecks, BlockThatReplacesNoneNeedsOneSync) {
  int syncs = 0;
  calls_.sync = [&] { return ++syncs, 0; };
  EXPECT_TRUE(one(job(0, 20)).ok);
  EXPECT_EQ(syncs, 1);
  EXPECT_TRUE(one(job(0, 21, true)).ok);
  EXPECT_EQ(syncs, 3);
  EXPECT_TRUE(holds(0, 21));
}

TEST_P(WriterChecks, ReturnedBuffersWakeWaiters) {
  std::vector<AlignedBuffer> taken;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(writer_->has_room());
    taken.push_back(writer_->take(true));
  }
  EXPECT_TRUE(writer_->has_room());
  StoreWriter::Job last = job(0, 20);
  EXPECT_FALSE(writer_->has_room());
  EXPECT_EQ(writer_->take(false).data(), nullptr);
  uint8_t* const place = last.bytes.data();
  auto waits = std::async(std::launch::async, [&] { return writer_->take(true); });
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(3)), std::future_status::timeout);
  writer_->push(std::move(last));
  AlignedBuffer back = waits.get();
  EXPECT_EQ(back.data(), place);
  EXPECT_FALSE(writer_->has_room());
  writer_->give_back(std::move(back));
  EXPECT_TRUE(writer_->has_room());
}

INSTANTIATE_TEST_SUITE_P(Both, WriterChecks,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(StoreOrder::arrival, StoreOrder::importance)));

}  // namespace
}  // namespace millrace
