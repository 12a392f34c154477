// MappingGuard: pages that a mapped file lost read as zeros and are reported, without ending the process; pages before
// them and other files stay as they are.
#include "tensor/mapping_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tensor/mapped_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class MappingGuards : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{1} << 20;
  void SetUp() override {
    for (const char* name : {"one", "other"}) {
      paths_.push_back(fs::temp_directory_path() / ("mapping_guard_test." + std::to_string(getpid()) + name));
      std::ofstream(paths_.back(), std::ios::binary) << std::string(kBytes, 'w');
      files_.push_back(*MappedFile::open(paths_.back().string()));
    }
  }
  void TearDown() override {
    for (const fs::path& path : paths_) fs::remove(path);
  }
  std::vector<fs::path> paths_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
};

TEST_F(MappingGuards, LostPagesReadAsZerosAndAreReported) {
  const MappingGuard guard(files_[0]->bytes()), other(files_[1]->bytes());
  const auto bytes = files_[0]->bytes();
  EXPECT_EQ(bytes[kBytes - 1], 'w');
  fs::resize_file(paths_[0], kBytes / 2);
  EXPECT_EQ(bytes[0], 'w');
  EXPECT_FALSE(guard.hit());
  const volatile uint8_t* lost = bytes.data() + kBytes * 3 / 4;
  EXPECT_EQ(*lost, 0);
  EXPECT_TRUE(guard.hit());
  EXPECT_EQ(bytes[kBytes - 1], 0);
  EXPECT_EQ(bytes[kBytes / 2 - 1], 'w');
  EXPECT_FALSE(other.hit());
  EXPECT_EQ(files_[1]->bytes()[kBytes - 1], 'w');
}

TEST_F(MappingGuards, AGuardIsFreeAgainAfterItsLife) {
  for (size_t i = 0; i < 3 * MappingGuard::kMax; ++i) {
    const MappingGuard guard(files_[1]->bytes());
    EXPECT_FALSE(guard.hit());
  }
  const MappingGuard guard(files_[0]->bytes());
  fs::resize_file(paths_[0], 4096);
  const volatile uint8_t* lost = files_[0]->bytes().data() + 8192;
  EXPECT_EQ(*lost, 0);
  EXPECT_TRUE(guard.hit());
}

TEST_F(MappingGuards, WithoutAGuardTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read_lost_page = [&] {
    { const MappingGuard guard(files_[0]->bytes()); }
    fs::resize_file(paths_[0], 4096);
    const volatile uint8_t* lost = files_[0]->bytes().data() + 8192;
    _exit(*lost == 0 ? 0 : 1);
  };
  EXPECT_EXIT(
      read_lost_page(), [](int status) { return status != 0; }, "");
}

}  // namespace
}  // namespace millrace
