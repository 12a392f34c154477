// Concurrent transfers of pieces of a file, by io_uring and by plain calls: all bytes are transferred, and a failure is
// reported for its piece only.
#include "kv/tiers/block_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"

namespace millrace {
namespace {

class Io : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/block_io_XXXXXX";
    fd_ = ::mkstemp(path_.data());
    ASSERT_GE(fd_, 0);
  }
  void TearDown() override {
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  // Null if io_uring is not available.
  static std::unique_ptr<BlockIo> open(int fd, int64_t depth) {
    return GetParam() ? make_uring_io(fd, depth) : make_plain_io(fd);
  }

  // Runs all pieces, as many at once as allowed; whether each succeeded, by tag.
  static std::map<uint64_t, bool> run(BlockIo& io, const std::vector<IoPiece>& pieces, size_t at_a_time = 3) {
    std::map<uint64_t, bool> out;
    std::vector<IoDone> done(at_a_time);
    int64_t under_way = 0;
    const auto take = [&] {
      const int64_t n = io.wait(done);
      ASSERT_GT(n, 0);
      ASSERT_LE(n, static_cast<int64_t>(at_a_time));
      for (int64_t i = 0; i < n; ++i)
        ASSERT_TRUE(out.emplace(done[static_cast<size_t>(i)].tag, done[static_cast<size_t>(i)].ok).second);
      under_way -= n;
    };
    for (const IoPiece& piece : pieces) {
      if (under_way == io.depth()) take();
      io.start(piece);
      ++under_way;
    }
    while (under_way > 0) take();
    return out;
  }

  std::string path_;
  int fd_ = -1;
};

TEST_P(Io, WritesAreReadBack) {
  auto io = open(fd_, 8);
  if (!io) GTEST_SKIP() << "no io_uring here";
  EXPECT_EQ(io->depth(), GetParam() ? 8 : 1);
  EXPECT_EQ(io->name(), GetParam() ? "io_uring" : "pread");
  std::vector<std::vector<uint8_t>> bytes(50), back(50);
  std::vector<IoPiece> writes, reads;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (size_t b = 0; b < 1 + i * 37; ++b) bytes[i].push_back(static_cast<uint8_t>(philox4x32(1, i, b)[0]));
    back[i].resize(bytes[i].size());
    const auto place = static_cast<int64_t>((i * 17 % 50) * 4096);
    writes.push_back({true, place, bytes[i].data(), static_cast<int64_t>(bytes[i].size()), i});
    reads.push_back({false, place, back[i].data(), static_cast<int64_t>(back[i].size()), 100 + i});
  }
  for (const auto& [tag, ok] : run(*io, writes)) EXPECT_TRUE(ok) << tag;
  const auto read = run(*io, reads, 1);
  EXPECT_EQ(read.size(), 50u);
  for (const auto& [tag, ok] : read) EXPECT_TRUE(ok) << tag;
  EXPECT_EQ(back, bytes);
  IoDone nothing;
  EXPECT_EQ(io->wait({&nothing, 1}), 0) << "nothing is in flight";
}

TEST_P(Io, FailureIsReportedForItsPieceOnly) {
  auto io = open(fd_, 4);
  if (!io) GTEST_SKIP() << "no io_uring here";
  std::vector<uint8_t> bytes(8192, 7), back(4096);
  ASSERT_TRUE(run(*io, {{true, 0, bytes.data(), 8192, 1}})[1]);
  const auto read = run(*io, {{false, 0, back.data(), 4096, 1},
                              {false, 4096, back.data(), 4097, 2},
                              {false, 9000, back.data(), 10, 3},
                              {false, 8191, back.data(), 1, 4},
                              {false, 8192, back.data(), 1, 5},
                              {false, 4096, back.data(), 4096, 6}});
  EXPECT_EQ(read, (std::map<uint64_t, bool>{{1, true}, {2, false}, {3, false}, {4, true}, {5, false}, {6, true}}));
  const int read_only = ::open(path_.c_str(), O_RDONLY);
  auto other = open(read_only, 4);
  ASSERT_TRUE(other);
  EXPECT_EQ(run(*other, {{true, 0, bytes.data(), 10, 1}, {false, 0, back.data(), 10, 2}}),
            (std::map<uint64_t, bool>{{1, false}, {2, true}}));
  ::close(read_only);
}

INSTANTIATE_TEST_SUITE_P(Both, Io, ::testing::Values(false, true),
                         [](const auto& one) { return one.param ? "Uring" : "Plain"; });

// A file that ends sets no error number: one from before says nothing.
TEST(BlockIo, AnEndOfFileAfterAnInterruptionIsAnEnd) {
  char path[] = "/tmp/block_io_XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  ::unlink(path);
  uint8_t byte = 0;
  errno = EINTR;
  EXPECT_FALSE(move_bytes(fd, {false, 0, &byte, 1, 0}));
  ::close(fd);
}

TEST(BlockIo, FallsBackToPlainCalls) {
  EXPECT_EQ(make_block_io(0, 4, false)->name(), "pread");
  EXPECT_TRUE(make_block_io(0, 4, true));
  const auto io = make_uring_io(0, 0);
  EXPECT_TRUE(!io || io->depth() == 1);
}

TEST(BlockIo, TransfersAllBytesOrReportsAnError) {
  std::string path = testing::TempDir() + "/block_io_XXXXXX";
  const int fd = ::mkstemp(path.data());
  std::vector<uint8_t> bytes(100, 3), back(100);
  EXPECT_TRUE(move_bytes(fd, {true, 50, bytes.data(), 100, 0}));
  EXPECT_TRUE(move_bytes(fd, {false, 50, back.data(), 100, 0}));
  EXPECT_EQ(bytes, back);
  EXPECT_TRUE(move_bytes(fd, {false, 500, back.data(), 0, 0}));
  EXPECT_FALSE(move_bytes(fd, {false, 51, back.data(), 100, 0})) << "one byte is missing";
  EXPECT_FALSE(move_bytes(-1, {true, 0, bytes.data(), 1, 0}));
  ::close(fd);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace millrace
