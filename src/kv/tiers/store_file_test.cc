// Opening the prefix store's file: when it is reused, when it is recreated, and each error message.
#include "kv/tiers/store_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>

#include "kv/tiers/block_io.h"
#include "kv/tiers/system_calls_test.h"

namespace millrace {
namespace {

const std::string kLayoutText = "KV f16 in blocks of 4 tokens, 5 layers: 2 of 2x8 1 of 1x8 2 of 1x16\n";
constexpr int64_t kBytes = 4096 + 3 * 6 * 4096;

class StoreFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "store_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/store";
  }
  void TearDown() override {
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }
  Result<StoreFile> open(StoreFile::Options options = {}) {
    if (options.path.empty()) options.path = path_;
    if (options.bytes == 0) options.bytes = kBytes;
    if (options.identity_text.empty()) options.identity_text = "a model";
    return StoreFile::open(options, {find_format("f16"), 4, {{2, 8}, {2, 8}, {1, 8}, {1, 16}, {1, 16}}});
  }
  std::string refusal(ErrorKind kind, StoreFile::Options options = {}) {
    const auto file = open(options);
    if (file.ok()) return "";
    EXPECT_EQ(file.error().kind, kind);
    return file.error().message;
  }
  int64_t size() const {
    struct stat info {};
    return ::stat(path_.c_str(), &info) == 0 ? info.st_size : -1;
  }
  std::string text_at(int64_t at, size_t bytes) const {
    std::ifstream file(path_, std::ios::binary);
    std::string out(bytes, 0);
    file.seekg(at);
    file.read(out.data(), static_cast<std::streamsize>(bytes));
    return out;
  }
  std::string folder_, path_;
};

TEST_F(StoreFiles, DescribeTheirModel) {
  const auto file = open();
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->made_anew());
  EXPECT_TRUE(file->sync());
  EXPECT_EQ(file->geometry().capacity, 3);
  EXPECT_EQ(size(), kBytes);
  EXPECT_EQ(file->identity(), store_identity(kLayoutText + "a model"));
  EXPECT_EQ(text_at(72, kLayoutText.size() + 8), kLayoutText + "a model" + '\0');
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "only the owner may read prompts";
}

TEST_F(StoreFiles, AreReusedUnlessHeaderOrSizeDiffers) {
  const auto mark = [&](char byte) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(4096);
    file.put(byte);
  };
  const auto anew = [&](StoreFile::Options options = {}) {
    const auto file = open(options);
    EXPECT_TRUE(file.ok());
    const bool marked = text_at(4096, 1) == "m";
    EXPECT_EQ(file->made_anew(), !marked);
    mark('m');
    return file->made_anew();
  };
  EXPECT_TRUE(anew());
  EXPECT_FALSE(anew());
  EXPECT_TRUE(anew({.identity_text = "another"}));
  EXPECT_TRUE(anew());
  EXPECT_TRUE(anew({.order = StoreOrder::importance}));
  EXPECT_TRUE(anew());
  EXPECT_TRUE(anew({.bytes = kBytes + 6 * 4096}));
  EXPECT_FALSE(anew({.bytes = kBytes + 7 * 4096})) << "no room for one more block";
  EXPECT_TRUE(anew());
  ASSERT_EQ(::truncate(path_.c_str(), kBytes + 1), 0);
  EXPECT_TRUE(anew());
  ASSERT_EQ(::truncate(path_.c_str(), kBytes - 1), 0);
  EXPECT_TRUE(anew());
  EXPECT_EQ(size(), kBytes);
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  EXPECT_TRUE(anew());
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  ASSERT_EQ(::truncate(path_.c_str(), 4096), 0);
  EXPECT_TRUE(anew()) << "a file of zeros holds no data";
}

TEST_F(StoreFiles, LongIdentityIsHashedAfterItsPrefix) {
  for (const size_t length : {size_t{2047}, size_t{2048}, size_t{2049}, size_t{5000}}) {
    const std::string model(length - kLayoutText.size(), 'm'), text = kLayoutText + model;
    const std::string beginning = text.substr(0, 1024) + fmt::format("\n... {:016x}\n", store_identity(text).low);
    const auto file = open({.identity_text = model});
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->identity(), store_identity(length <= 2048 ? text : beginning)) << length;
  }
}

TEST_F(StoreFiles, RejectOtherFiles) {
  EXPECT_EQ(refusal(ErrorKind::user, {.bytes = 7 * 4096 - 1}),
            "KV store: one block of 4 tokens takes 28672 bytes, 28671 are allowed; give it more");
  EXPECT_EQ(size(), -1) << "before a file is created";
  EXPECT_EQ(refusal(ErrorKind::resource, {.path = folder_ + "/none/store"}),
            fmt::format("KV store: {}/none/store cannot be opened: No such file or directory", folder_));
  EXPECT_EQ(refusal(ErrorKind::resource, {.path = folder_}),
            fmt::format("KV store: {} cannot be opened: Is a directory", folder_));
  EXPECT_EQ(refusal(ErrorKind::user, {.path = "/dev/null"}), "KV store: /dev/null is not a regular file");
  for (const std::string& content :
       {std::string("x"), std::string(4095, '\0'), std::string(4096, 'x'), std::string(9000, 'x')}) {
    std::ofstream(path_, std::ios::trunc) << content;
    EXPECT_EQ(refusal(ErrorKind::user),
              fmt::format("KV store: {} is something else; choose another path or remove it", path_));
    EXPECT_EQ(text_at(0, content.size()), content);
    EXPECT_EQ(size(), std::ssize(content));
  }
}

TEST_F(StoreFiles, BelongToOneEngineAtATime) {
  auto first = open();
  ASSERT_TRUE(first.ok());
  const std::string in_use = fmt::format("KV store: {} is in use by another engine; give each its own", path_);
  EXPECT_EQ(refusal(ErrorKind::user, {.lock_seconds = 0}), in_use);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(refusal(ErrorKind::user, {.lock_seconds = 0.03}), in_use);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(30));
  auto second = std::async(std::launch::async, [&] { return open({.lock_seconds = 60}).ok(); });
  { StoreFile gone = std::move(*first); }
  EXPECT_TRUE(second.get());
}

TEST_F(StoreFiles, DescriptorZeroIsClosedToo) {
  const int input = ::dup(0);
  ::close(0);
  { EXPECT_EQ(open()->fd(), 0); }
  EXPECT_EQ(::fcntl(0, F_GETFD), -1);
  if (input >= 0) {
    ::dup2(input, 0);
    ::close(input);
  }
}

TEST_F(StoreFiles, ReportWhetherTheyUseDirectIo) {
  for (const bool direct : {true, false}) {
    const auto file = open({.direct = direct});
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->direct(), (::fcntl(file->fd(), F_GETFL) & O_DIRECT) != 0);
    if (!direct) {
      EXPECT_FALSE(file->direct());
    }
  }
}

// A file system that accepts O_DIRECT but then fails reads: the flag is removed.
TEST_F(StoreFiles, FallBackToThePageCache) {
  ASSERT_TRUE(open().ok());
  SystemCalls calls;
  int reads = 0;
  calls.read = [&](off_t) { return ++reads == 2 ? EINVAL : 0; };  // the first one is the header
  const auto file = open();
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->direct());
  EXPECT_EQ(::fcntl(file->fd(), F_GETFL) & O_DIRECT, 0);
}

TEST_F(StoreFiles, ReportDiskErrors) {
  SystemCalls calls;
  const auto cannot = [&](const char* what) {
    return fmt::format("KV store: {} cannot be {}: Input/output error", path_, what);
  };
  calls.write = [](off_t) { return EIO; };
  EXPECT_EQ(refusal(ErrorKind::resource), cannot("written"));
  calls.write = nullptr;
  calls.truncate = [] { return EIO; };
  EXPECT_EQ(refusal(ErrorKind::resource), cannot("written"));
  calls.truncate = nullptr;
  calls.sync = [] { return EIO; };
  EXPECT_EQ(refusal(ErrorKind::resource), cannot("synced"));
  calls.sync = nullptr;
  ASSERT_TRUE(open().ok());
  calls.read = [](off_t) { return EIO; };
  EXPECT_EQ(refusal(ErrorKind::resource), cannot("read"));
  calls.read = nullptr;
  const auto file = open();
  calls.sync = [] { return EIO; };
  EXPECT_FALSE(file->sync());
}

TEST_F(StoreFiles, LeaveNoFileWhenTheDiskIsFull) {
  SystemCalls calls;
  for (const auto& [error, words] : {std::pair{ENOSPC, "No space left on device"}, {EFBIG, "File too large"}}) {
    calls.allocate = [error = error] { return error; };
    EXPECT_EQ(refusal(ErrorKind::resource), fmt::format("KV store: {} needs {} bytes: {}", path_, kBytes, words));
    EXPECT_EQ(size(), 0);
  }
}

TEST_F(StoreFiles, AreSparseWithoutPreallocation) {
  SystemCalls calls;
  calls.allocate = [] { return EOPNOTSUPP; };
  {
    const auto file = open();
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->made_anew());
    EXPECT_EQ(size(), kBytes);
  }
  EXPECT_FALSE(open()->made_anew());
  int truncated = 0;
  calls.truncate = [&] { return ++truncated == 2 ? EIO : 0; };  // the first one empties the file
  EXPECT_EQ(refusal(ErrorKind::resource, {.identity_text = "another"}),
            fmt::format("KV store: {} cannot be resized: Input/output error", path_));
}

}  // namespace
}  // namespace millrace
