// The writer with disk errors: failures are reported, a failed block is not found again, and other blocks and the
// buffers are not affected.
#include "kv/tiers/store_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

namespace millrace {
namespace {

class Writer : public ::testing::TestWithParam<std::tuple<bool, StoreOrder>> {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/store_writer_XXXXXX";
    ::close(::mkstemp(path_.data()));
    before_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  void TearDown() override {
    std::signal(SIGXFSZ, before_);
    ::unlink(path_.c_str());
  }
  StoreFile open() {
    const KvLayout layout{find_format("f16"), 4, {{2, 8}, {1, 16}}};
    auto file = StoreFile::open({path_, 1 << 20, "test", false, 4, std::get<1>(GetParam())}, layout);
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
    return std::move(*file);
  }
  // What a new reader finds in the file: the first token of each block, by slot.
  std::map<int64_t, TokenId> stored() {
    const StoreFile file = open();
    const StoreGeometry& g = file.geometry();
    std::map<int64_t, TokenId> found;
    std::vector<uint8_t> bytes(static_cast<size_t>(g.record_bytes));
    for (int64_t slot = 0; slot < g.capacity; ++slot) {
      EXPECT_TRUE(move_bytes(file.fd(), {false, g.record_at(slot), bytes.data(), g.record_bytes, 0}));
      StoreRecord record;
      if (decode_record(g, file.identity(), slot, bytes, record) == RecordState::good)
        found[slot] = record.tokens.front();
    }
    return found;
  }
  static StoreWriter::Job job(StoreWriter& writer, int64_t slot, TokenId token, bool dirty = false) {
    StoreWriter::Job out;
    out.slot = slot, out.dirty = dirty;
    const PrefixKey parent{2, 3};
    const std::vector<TokenId> tokens{token, 1, 2, 3};
    out.record = {static_cast<uint64_t>(token), next_key(parent, tokens), parent, tokens, {}, 0};
    out.bytes = writer.take(true);
    EXPECT_TRUE(out.bytes.data());
    std::memset(out.bytes.data(), token, static_cast<size_t>(out.bytes.bytes()));
    return out;
  }
  // Waits for that many to end.
  static std::map<int64_t, bool> ended(StoreWriter& writer, size_t count) {
    std::map<int64_t, bool> out;
    std::vector<StoreWriter::Written> some;
    for (int tries = 0; out.size() < count && tries < 20'000; ++tries) {
      writer.collect(some);
      for (const auto& one : some) out[one.slot] = one.ok;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return out;
  }
  bool uring() const { return std::get<0>(GetParam()); }

  std::string path_;
  void (*before_)(int) = nullptr;
};

// While this exists, no byte beyond this file offset can be written.
class FileEnd {
 public:
  explicit FileEnd(int64_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(bytes);
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileEnd() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_P(Writer, WritesAreFoundAgain) {
  {
    const StoreFile file = open();
    StoreWriter writer(file, 4, uring());
    for (int64_t slot = 0; slot < 9; ++slot) writer.push(job(writer, slot, static_cast<TokenId>(10 + slot)));
    const auto all = ended(writer, 9);
    EXPECT_EQ(all.size(), 9u);
    for (const auto& [slot, ok] : all) EXPECT_TRUE(ok) << slot;
    writer.push(job(writer, 3, 50, true));
    EXPECT_TRUE(ended(writer, 1)[3]);
    writer.push(job(writer, 4, 60, true));  // the destructor waits for it
  }
  EXPECT_EQ(stored(), (std::map<int64_t, TokenId>{
                          {0, 10}, {1, 11}, {2, 12}, {3, 50}, {4, 60}, {5, 15}, {6, 16}, {7, 17}, {8, 18}}));
}

// If a block's bytes do not reach the disk, neither its old record nor the new one may be found.
TEST_P(Writer, BlockWithFailedDataWriteIsAbsent) {
  {
    const StoreFile file = open();
    StoreWriter writer(file, 4, uring());
    writer.push(job(writer, 0, 10));
    writer.push(job(writer, 1, 11));
    EXPECT_EQ(ended(writer, 2), (std::map<int64_t, bool>{{0, true}, {1, true}}));
    const FileEnd records_only(file.geometry().slots_at());
    writer.push(job(writer, 0, 20, true));
    EXPECT_EQ(ended(writer, 1), (std::map<int64_t, bool>{{0, false}}));
    writer.push(job(writer, 5, 25));
    EXPECT_EQ(ended(writer, 1), (std::map<int64_t, bool>{{5, false}}));
  }
  EXPECT_EQ(stored(), (std::map<int64_t, TokenId>{{1, 11}}));
}

TEST_P(Writer, FailureDoesNotAffectOtherBlocks) {
  int64_t last = 0;
  {
    const StoreFile file = open();
    last = file.geometry().capacity - 1;
    StoreWriter writer(file, 4, uring());
    const FileEnd before_the_last(file.geometry().place(last, 0));
    std::vector<StoreWriter::Job> jobs;
    for (int64_t slot : {int64_t{0}, last, int64_t{1}})
      jobs.push_back(job(writer, slot, static_cast<TokenId>(slot + 10)));
    for (auto& one : jobs) writer.push(std::move(one));
    EXPECT_EQ(ended(writer, 3), (std::map<int64_t, bool>{{0, true}, {1, true}, {last, false}}));
  }
  EXPECT_EQ(stored(), (std::map<int64_t, TokenId>{{0, 10}, {1, 11}}));
}

TEST_P(Writer, FullDiskFailsAllWritesAndStops) {
  const StoreFile file = open();
  StoreWriter writer(file, 2, uring());
  const int read_only = ::open(path_.c_str(), O_RDONLY);
  const int writable = ::dup(file.fd());
  ASSERT_EQ(::dup2(read_only, file.fd()), file.fd());
  for (int round = 0; round < 4; ++round) {
    for (int64_t slot : {0, 1}) writer.push(job(writer, slot, 9, round > 1));  // both buffers are returned each time
    EXPECT_EQ(ended(writer, 2), (std::map<int64_t, bool>{{0, false}, {1, false}}));
  }
  ::dup2(writable, file.fd());
  ::close(writable);
  ::close(read_only);
  writer.push(job(writer, 0, 30));
  EXPECT_TRUE(ended(writer, 1)[0]);
}

TEST_P(Writer, BuffersAreBounded) {
  const StoreFile file = open();
  StoreWriter writer(file, 2, uring());
  AlignedBuffer first = writer.take(false), second = writer.take(true);
  EXPECT_EQ(first.bytes(), file.geometry().slot_bytes);
  EXPECT_FALSE(writer.take(false).data()) << "both are out";
  uint8_t* const place = second.data();
  writer.give_back(std::move(second));
  EXPECT_EQ(writer.take(false).data(), place);
  EXPECT_FALSE(writer.take(false).data()) << "it was evicted and not written again";
}

INSTANTIATE_TEST_SUITE_P(Both, Writer,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(StoreOrder::arrival, StoreOrder::importance)));

}  // namespace
}  // namespace millrace
