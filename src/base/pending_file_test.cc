#include "base/pending_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace millrace {
namespace {

namespace fs = std::filesystem;

class PendingFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("pending_file_test." + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path() const { return folder_ / "file"; }
  std::string content() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int64_t files() const { return std::distance(fs::directory_iterator(folder_), {}); }

  fs::path folder_;
};

TEST_F(PendingFiles, AppearWhenTheyAreComplete) {
  {
    PendingFile file(path());
    ASSERT_TRUE(file.created());
    EXPECT_TRUE(file.write("world", 5, 6));
    EXPECT_TRUE(file.write("hello ", 6, 0));
    EXPECT_FALSE(fs::exists(path()));
    EXPECT_TRUE(file.commit());
    EXPECT_EQ(content(), "hello world");
    EXPECT_FALSE(file.write("x", 1, 0));
  }
  EXPECT_EQ(content(), "hello world");
  EXPECT_EQ(files(), 1);
}

TEST_F(PendingFiles, IncompleteOnesAreRemovedAndReplaceNothing) {
  std::ofstream(path()) << "older";
  {
    PendingFile file(path());
    EXPECT_TRUE(file.write("new", 3, 0));
  }
  EXPECT_EQ(content(), "older");
  EXPECT_EQ(files(), 1);
}

// Two writers of one name at once, and what a killed process with this id has left behind.
TEST_F(PendingFiles, NamesAreTakenOnce) {
  std::ofstream(path() + "." + std::to_string(getpid()) + "-0.partial") << "left";
  PendingFile first(path()), second(path());
  ASSERT_TRUE(first.created() && second.created());
  EXPECT_TRUE(first.write("first", 5, 0));
  EXPECT_TRUE(second.write("second", 6, 0));
  EXPECT_TRUE(second.commit());
  EXPECT_EQ(content(), "second");
  EXPECT_TRUE(first.commit());
  EXPECT_EQ(content(), "first");
}

// Keys and values of a conversation are its user's.
TEST_F(PendingFiles, FollowTheUmask) {
  const mode_t before = umask(077);
  PendingFile file(path());
  umask(before);
  ASSERT_TRUE(file.commit());
  struct stat info {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(PendingFiles, AFolderThatIsMissingIsAnError) {
  PendingFile file(path() + "/below");
  EXPECT_FALSE(file.created());
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(file.write("x", 1, 0));
  EXPECT_FALSE(file.commit());
}

}  // namespace
}  // namespace millrace
