// io_uring: it is used if the kernel supports it, waiting returns after the first completion, and destruction leaves
// nothing behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "kv/tiers/block_io.h"

namespace millrace {
namespace {

bool kernel_has_it() {
  io_uring_params parameters{};
  const auto ring = static_cast<int>(::syscall(SYS_io_uring_setup, 4, &parameters));
  if (ring < 0) return false;
  ::close(ring);
  return (parameters.features & IORING_FEAT_RW_CUR_POS) != 0;  // since 5.6, like non-vectored reads and writes
}

int next_descriptor() {
  const int fd = ::dup(1);
  ::close(fd);
  return fd;
}

class UringIo : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kernel_has_it()) GTEST_SKIP() << "no io_uring here";
    path_ = testing::TempDir() + "/uring_io_XXXXXX";
    fd_ = ::mkstemp(path_.data());
  }
  void TearDown() override {
    if (fd_ >= 0) ::close(fd_);
    ::unlink(path_.c_str());
  }
  std::string path_;
  int fd_ = -1;
};

TEST_F(UringIo, IsUsedIfTheKernelSupportsIt) {
  ASSERT_TRUE(make_uring_io(fd_, 4));
  EXPECT_EQ(make_uring_io(fd_, 4)->depth(), 4);
  EXPECT_EQ(make_uring_io(fd_, 1)->depth(), 1);
  EXPECT_EQ(make_uring_io(fd_, -3)->depth(), 1);
  EXPECT_EQ(make_block_io(fd_, 4, true)->name(), "io_uring");
  EXPECT_EQ(make_block_io(fd_, 4, true)->depth(), 4);
  EXPECT_EQ(make_block_io(fd_, 4, false)->depth(), 1);
  EXPECT_FALSE(make_uring_io(fd_, int64_t{1} << 30)) << "more than any kernel allows";
  EXPECT_EQ(make_block_io(fd_, int64_t{1} << 30, true)->name(), "pread");
}

TEST_F(UringIo, ClosesItsRing) {
  const int before = next_descriptor();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(make_uring_io(fd_, 2));
    EXPECT_EQ(next_descriptor(), before);
  }
  EXPECT_FALSE(make_uring_io(fd_, int64_t{1} << 30));
  EXPECT_EQ(next_descriptor(), before);
}

TEST_F(UringIo, CompletesPendingOperationsOnDestruction) {
  std::vector<uint8_t> bytes(5000, 3), back(5000);
  {
    auto io = make_uring_io(fd_, 4);
    io->start({true, 0, bytes.data(), 3000, 1});
    io->start({true, 3000, bytes.data(), 2000, 2});
  }
  EXPECT_TRUE(move_bytes(fd_, {false, 0, back.data(), 5000, 0}));
  EXPECT_EQ(back, bytes);
}

// Only one of two pipe reads has a byte to read; waiting must not block on the other.
TEST_F(UringIo, WaitReturnsAfterOneCompletion) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    auto io = make_uring_io(ends[0], 4);
    uint8_t first = 0, second = 0;
    IoDone done[4];
    ASSERT_EQ(::write(ends[1], "a", 1), 1);
    io->start({false, 0, &first, 1, 5});
    io->start({false, 0, &second, 1, 6});
    ASSERT_EQ(io->wait(done), 1);
    EXPECT_TRUE(done[0].ok);
    const uint64_t tag = done[0].tag;
    EXPECT_EQ(tag == 5 ? first : second, 'a');
    ASSERT_EQ(::write(ends[1], "b", 1), 1);
    ASSERT_EQ(io->wait(done), 1);
    EXPECT_EQ(done[0].tag, tag == 5 ? 6u : 5u);
    EXPECT_EQ(tag == 5 ? second : first, 'b');
    EXPECT_EQ(io->wait(done), 0);
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(UringIo, ReturnsAvailableCompletionsUpToTheRequestedNumber) {
  auto io = make_uring_io(fd_, 8);
  std::vector<uint8_t> bytes(8 * 100, 9);
  IoDone done[8];
  std::map<uint64_t, bool> ended;
  for (uint64_t i = 0; i < 8; ++i) io->start({true, static_cast<int64_t>(i * 100), bytes.data() + i * 100, 100, i});
  EXPECT_EQ(io->wait(std::span<IoDone>{}), 0);
  for (int left = 8; left > 0;) {
    const int64_t n = io->wait(std::span(done).first(3));
    ASSERT_GE(n, 1);
    ASSERT_LE(n, 3);
    for (int64_t i = 0; i < n; ++i) ended[done[i].tag] = done[i].ok;
    left -= static_cast<int>(n);
  }
  EXPECT_EQ(ended.size(), 8u);
  EXPECT_TRUE(std::ranges::all_of(ended, [](const auto& one) { return one.second; }));
}

// A file that returns a page at a time: io_uring reads are short, and plain calls read the rest.
TEST(BlockIoPieces, ShortReadIsContinued) {
  const int fd = ::open("/proc/self/smaps", O_RDONLY);
  std::vector<uint8_t> bytes(12'000);
  if (fd < 0 || ::pread(fd, bytes.data(), bytes.size(), 0) >= std::ssize(bytes)) GTEST_SKIP() << "no such file here";
  for (const bool uring : {false, true}) {
    std::ranges::fill(bytes, uint8_t{0});
    auto io = make_block_io(fd, 2, uring);
    IoDone done;
    io->start({false, 0, bytes.data(), std::ssize(bytes), 4});
    ASSERT_EQ(io->wait({&done, 1}), 1);
    EXPECT_TRUE(done.ok) << uring;
    EXPECT_EQ(std::ranges::count(bytes, uint8_t{0}), 0);
  }
  ::close(fd);
}

TEST(BlockIoPieces, PlainPieceIsReturnedOnce) {
  auto io = make_plain_io(-1);
  uint8_t byte = 0;
  IoDone done;
  EXPECT_EQ(io->wait({&done, 1}), 0);
  io->start({true, 0, &byte, 1, 9});
  EXPECT_EQ(io->wait(std::span<IoDone>{}), 0);
  EXPECT_EQ(io->wait({&done, 1}), 1);
  EXPECT_EQ(done.tag, 9u);
  EXPECT_FALSE(done.ok);
  EXPECT_EQ(io->wait({&done, 1}), 0);
}

}  // namespace
}  // namespace millrace
