#include "base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace millrace {
namespace {

namespace fs = std::filesystem;

class Memory : public ::testing::Test {
 protected:
  void SetUp() override { root_ = fs::temp_directory_path() / ("memory_test." + std::to_string(getpid())); }
  void TearDown() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  AvailableMemory available() const { return available_memory(root_.string()); }
  fs::path root_;
};

TEST_F(Memory, UnknownMeansNoLimit) {
  EXPECT_EQ(available().bytes, INT64_MAX);
  EXPECT_TRUE(check_memory(int64_t{1} << 50, "weights", "", available()).ok());
}

TEST_F(Memory, FreeSwapCountsAsAvailable) {
  put("proc/meminfo", "MemTotal:       4000 kB\nMemAvailable:    1000 kB\nSwapFree:  24 kB\n");
  EXPECT_EQ(available().bytes, 1024 * 1024);
  EXPECT_EQ(available().limit, "this machine");
}

TEST_F(Memory, AllControlGroupsUpToTheRootLimit) {
  put("proc/meminfo", "MemAvailable:    1000000 kB\n");
  put("proc/self/cgroup", "12:cpu:/x\n0::/outer/inner\n");
  put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  put("sys/fs/cgroup/outer/inner/memory.current", "100\n");
  EXPECT_EQ(available().limit, "this machine");
  put("sys/fs/cgroup/outer/memory.max", "500000\n");
  put("sys/fs/cgroup/outer/memory.current", "400000\n");
  put("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 30000\nactive_file 20000\n");
  EXPECT_EQ(available().bytes, 150000);
  EXPECT_EQ(available().limit, "the control group /outer");
  put("sys/fs/cgroup/memory.max", "1000\n");
  put("sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(available().bytes, 0);
  EXPECT_EQ(available().limit, "the control group /");
}

TEST_F(Memory, VersionOneControlGroups) {
  put("proc/meminfo", "MemTotal:  3000000 kB\nMemAvailable:    1000000 kB\nSwapTotal: 0 kB\n");
  put("proc/self/cgroup", "5:memory:/box\n4:cpu:/box\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(available().limit, "this machine");
  EXPECT_EQ(total_memory(root_.string()).bytes, int64_t{3000000} * 1024);
  put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "800000\n");
  put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "500000\n");
  put("sys/fs/cgroup/memory/box/memory.stat", "cache 1\ntotal_inactive_file 40000\ntotal_active_file 10000\n");
  EXPECT_EQ(available().bytes, 350000);
  EXPECT_EQ(available().limit, "the control group /box");
  EXPECT_EQ(total_memory(root_.string()).bytes, 800000);
}

TEST_F(Memory, ResidentAndPeak) {
  const int64_t before = resident_bytes();  // reading the peak may need memory of its own
  EXPECT_GT(before, 0);
  EXPECT_GE(peak_resident_bytes(), before);
}

TEST_F(Memory, GarbageMeansNoLimit) {
  put("proc/meminfo", "MemAvailable: lots\nSwapFree: -5 kB\n");
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "-1\n");
  put("sys/fs/cgroup/memory.current", "99999999999999999999999\n");
  EXPECT_EQ(available().bytes, INT64_MAX);
}

TEST_F(Memory, ErrorsContainTheNumbers) {
  auto refused = check_memory(3'000'000'000, "weights", "choose a smaller model", {2'000'000'000, "this machine"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  EXPECT_EQ(refused.error().message,
            "weights: needs 3.00 GB of memory, but this machine has only 2.00 GB left; choose a smaller model");
  EXPECT_TRUE(check_memory(2'000'000'000, "weights", "", {2'000'000'000, "this machine"}).ok());
}

}  // namespace
}  // namespace millrace
