// ReadDepth: finds the fewest reads in flight with which a disk is as fast as it can be.
#include "models/weight_units/read_depth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// Reads `pieces` pieces of 1 MiB from a disk that needs `full` reads in flight for one byte per nanosecond.
void read_from_disk(ReadDepth& depth, int64_t full, int pieces) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  for (int i = 0; i < pieces; ++i) depth.was_read(kPiece, kPiece * full / std::min(full, depth.now()));
}

TEST(ReadDepth, IsWhatTheDiskNeeds) {
  for (const auto& [full, want] : {std::pair(1, 4), {4, 4}, {6, 8}, {16, 16}, {24, 32}, {1000, 32}}) {
    ReadDepth depth(0);
    EXPECT_EQ(depth.max(), 32);
    read_from_disk(depth, full, 500);
    EXPECT_EQ(depth.now(), want) << full;
    depth.choose();
    read_from_disk(depth, 1000, 500);
    EXPECT_EQ(depth.now(), want) << full;
  }
}

TEST(ReadDepth, WithoutEnoughReadsItIsSixteen) {
  ReadDepth depth(0);
  read_from_disk(depth, 1, 100);
  depth.choose();
  EXPECT_EQ(depth.now(), 16);
}

TEST(ReadDepth, AGivenOneStays) {
  ReadDepth depth(7);
  EXPECT_EQ(depth.max(), 7);
  read_from_disk(depth, 1000, 500);
  depth.choose();
  EXPECT_EQ(depth.now(), 7);
}

}  // namespace
}  // namespace millrace
