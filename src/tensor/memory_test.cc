// AlignedBuffer and MappedFile: alignment, ownership, and which pages are in memory when.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tensor/aligned_buffer.h"
#include "tensor/mapped_file.h"

namespace millrace {
namespace {

TEST(AlignedBuffer, LargeOnesStartOnAHugePageAndAreZero) {
  for (int64_t bytes : {int64_t{1}, int64_t{4096}, 2 * kHugePageBytes, 3 * kHugePageBytes + 5}) {
    auto buffer = AlignedBuffer::allocate(bytes, "test");
    ASSERT_TRUE(buffer.ok());
    const int64_t alignment = bytes >= 2 * kHugePageBytes ? kHugePageBytes : 64;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % static_cast<uintptr_t>(alignment), 0u);
    for (int64_t i = 0; i < bytes; i += 997) ASSERT_EQ(buffer->data()[i], 0);
    buffer->data()[bytes - 1] = 1;
  }
}

TEST(AlignedBuffer, AViewOwnsNothing) {
  auto buffer = AlignedBuffer::allocate(100, "test");
  ASSERT_TRUE(buffer.ok());
  buffer->data()[70] = 42;
  {
    AlignedBuffer view = AlignedBuffer::view(buffer->data() + 64, 36);
    AlignedBuffer moved = std::move(view);
    EXPECT_EQ(moved.data()[6], 42);
    EXPECT_EQ(moved.bytes(), 36);
  }
  EXPECT_EQ(buffer->data()[70], 42);
}

TEST(AlignedBuffer, RejectsImpossibleSizes) {
  auto buffer = AlignedBuffer::allocate(int64_t{1} << 60, "test");
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().kind, ErrorKind::resource);
  EXPECT_EQ(AlignedBuffer::allocate(-1, "test").error().kind, ErrorKind::internal);
}

#if defined(__linux__)
// Resident kilobytes of the mapping of `path`.
int64_t resident_kb(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" /") != std::string::npos || line.find('-') < 17) inside = line.ends_with(path);
    if (inside && line.starts_with("Rss:")) return std::atoll(line.c_str() + 4);
  }
  return -1;
}

TEST(MappedFile, ReleasedPagesLeaveTheProcessAndCanBeReadAgain) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("mapped_file_test." + std::to_string(getpid()))).string();
  constexpr size_t kBytes = 8 << 20;
  std::ofstream(path, std::ios::binary) << std::string(kBytes, 'x');
  {
    auto file = MappedFile::open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_GT((*file)->modified_ns(), 0);
    (*file)->populate(0, kBytes);
    (*file)->populate(kBytes - 1, 5 * kBytes);  // beyond the end
    for (size_t i = 0; i < kBytes; i += 1024) ASSERT_EQ((*file)->bytes()[i], 'x');
    EXPECT_EQ(resident_kb(path), static_cast<int64_t>(kBytes >> 10));
    (*file)->release(100, 200);  // no whole page
    (*file)->release(kBytes, 4096);
    EXPECT_EQ(resident_kb(path), static_cast<int64_t>(kBytes >> 10));
    (*file)->release(0, 2 * kBytes);
    EXPECT_EQ(resident_kb(path), 0);
    EXPECT_EQ((*file)->bytes()[kBytes - 1], 'x');
  }
  std::filesystem::remove(path);
}
#endif

}  // namespace
}  // namespace millrace
