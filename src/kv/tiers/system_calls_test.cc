#include "kv/tiers/system_calls_test.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "kv/tiers/block_io.h"

namespace millrace {
namespace {

std::atomic<SystemCalls*> active{nullptr};

// True: the call fails, errno is set.
template <typename Ask, typename... Values>
bool fails(const Ask& ask, Values... values) {
  const int error = ask ? ask(values...) : 0;
  if (error != 0) errno = error;
  return error != 0;
}

size_t shortened(size_t bytes) {
  const SystemCalls* calls = active;
  return calls ? std::min(bytes, static_cast<size_t>(calls->most_bytes.load())) : bytes;
}

}  // namespace

SystemCalls::SystemCalls() { active = this; }
SystemCalls::~SystemCalls() { active = nullptr; }

}  // namespace millrace

using millrace::active;
using millrace::fails;
using millrace::SystemCalls;

extern "C" {

ssize_t pread(int fd, void* data, size_t bytes, off_t at) {
  if (SystemCalls* calls = active; calls && fails(calls->read, at)) return -1;
  return ::syscall(SYS_pread64, fd, data, millrace::shortened(bytes), at);
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
  if (SystemCalls* calls = active; calls && fails(calls->write, at)) return -1;
  return ::syscall(SYS_pwrite64, fd, data, millrace::shortened(bytes), at);
}

int fdatasync(int fd) {
  if (SystemCalls* calls = active; calls && fails(calls->sync)) return -1;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

int fsync(int fd) {
  if (SystemCalls* calls = active; calls && fails(calls->sync)) return -1;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int fallocate(int fd, int mode, off_t at, off_t bytes) {
  if (SystemCalls* calls = active; calls && fails(calls->allocate)) return -1;
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, at, bytes));
}

int ftruncate(int fd, off_t bytes) noexcept {
  if (SystemCalls* calls = active; calls && fails(calls->truncate)) return -1;
  return static_cast<int>(::syscall(SYS_ftruncate, fd, bytes));
}

}  // extern "C"

namespace millrace {
namespace {

class MoveBytes : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/system_calls_XXXXXX";
    fd_ = ::mkstemp(path_.data());
    ASSERT_GE(fd_, 0);
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<uint8_t>(i * 13 + i / 256);
  }
  void TearDown() override {
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  std::string path_;
  int fd_ = -1;
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(1000), back_ = std::vector<uint8_t>(1000);
};

TEST_F(MoveBytes, ContinuesAfterAShortCall) {
  SystemCalls calls;
  calls.most_bytes = 300;
  std::vector<off_t> written, read;
  calls.write = [&](off_t at) { return written.push_back(at), 0; };
  calls.read = [&](off_t at) { return read.push_back(at), 0; };
  EXPECT_TRUE(move_bytes(fd_, {true, 50, bytes_.data(), 1000, 0}));
  EXPECT_TRUE(move_bytes(fd_, {false, 50, back_.data(), 1000, 0}));
  EXPECT_EQ(written, (std::vector<off_t>{50, 350, 650, 950}));
  EXPECT_EQ(read, written);
  EXPECT_EQ(back_, bytes_);
}

TEST_F(MoveBytes, RetriesOnlyAfterAnInterruption) {
  for (const bool write : {true, false}) {
    for (const int error : {EINTR, EIO, EAGAIN, ENOSPC}) {
      SystemCalls calls;
      int attempts = 0;
      const auto twice = [&](off_t) { return ++attempts <= 2 ? error : 0; };
      (write ? calls.write : calls.read) = twice;
      EXPECT_EQ(move_bytes(fd_, {write, 0, bytes_.data(), 1000, 0}), error == EINTR) << write << " " << error;
      EXPECT_EQ(attempts, error == EINTR ? 3 : 1);
    }
  }
}

TEST_F(MoveBytes, AnErrorAfterAShortCallIsAnError) {
  SystemCalls calls;
  calls.most_bytes = 999;
  calls.write = [](off_t at) { return at == 999 ? EIO : 0; };
  EXPECT_FALSE(move_bytes(fd_, {true, 0, bytes_.data(), 1000, 0}));
  EXPECT_TRUE(move_bytes(fd_, {true, 0, bytes_.data(), 999, 0}));
}

}  // namespace
}  // namespace millrace
