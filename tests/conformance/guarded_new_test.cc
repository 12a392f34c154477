// The memory that the kernels of this program get ends where nothing can be read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <vector>

namespace millrace {
namespace {

// By asking the system, which refuses what would end the program.
bool readable(const uint8_t* at) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const bool written = write(ends[1], at, 1) == 1;
  EXPECT_TRUE(written || errno == EFAULT) << errno;
  close(ends[0]);
  close(ends[1]);
  return written;
}

TEST(GuardedNew, EndsWhereNothingCanBeRead) {
  for (const int64_t bytes : {256, 4064, 4080, 4096, 4100, 65536, 5 << 20}) {
    for (int round = 0; round < 3; ++round) {  // in new memory, and in what was given back
      std::vector<uint8_t> memory(static_cast<size_t>(bytes), 7);
      const int64_t whole = (bytes + 15) / 16 * 16;
      EXPECT_TRUE(readable(memory.data() + whole - 1)) << bytes;
      EXPECT_FALSE(readable(memory.data() + whole)) << bytes;
    }
  }
}

}  // namespace
}  // namespace millrace
