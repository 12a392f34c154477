// VirtualRanges if every range has an owner, if memory is short, and if its counts are wrong.
#include <gtest/gtest.h>

#include "kv/pool.h"
#include "kv/virtual_ranges.h"

namespace millrace {
namespace {

using Given = std::vector<std::pair<BlockId, int64_t>>;
const auto kNone = [](BlockId, int64_t) { FAIL(); };

// A stream without a range of its own gets unused blocks of other ranges, starting from the last one found.
TEST(VirtualRangesCounts, SearchForAnyBlockIsRoundRobin) {
  VirtualRanges ranges(8, 2, 3);
  KvRange owned[3], more;
  for (KvRange& range : owned) ranges.take(range, kNone);
  for (const BlockId expected : {5, 3, 1}) EXPECT_EQ(ranges.take(more, kNone), expected);
  EXPECT_EQ(more.index, -1);
  EXPECT_EQ(ranges.in_use(), 6);
  EXPECT_TRUE(ranges.check().ok());
}

TEST(VirtualRangesCounts, MemoryIsReclaimedRoundRobin) {
  VirtualRanges ranges(6, 3, 4);
  KvRange a, b, c;
  Given given;
  const auto note = [&](BlockId first, int64_t count) { given.emplace_back(first, count); };
  for (KvRange* range : {&a, &b})
    for (int i = 0; i < 3; ++i) ranges.take(*range, note);
  for (const BlockId block : {0, 2, 4}) ranges.release(block);  // their owners keep the ranges
  EXPECT_EQ(ranges.in_use(), 3);
  EXPECT_EQ(ranges.committed(), 6);
  ranges.take(c, note);
  EXPECT_EQ(given, (Given{{4, 1}})) << "the next range first";
  ranges.take(c, note);
  EXPECT_EQ(given, (Given{{4, 1}, {0, 1}})) << "then the other one, a run at a time";
  ranges.take(c, note);
  EXPECT_EQ(given, (Given{{4, 1}, {0, 1}, {2, 1}}));
  EXPECT_EQ(ranges.in_use(), 6);
  EXPECT_EQ(ranges.committed(), 6);
  EXPECT_TRUE(ranges.check().ok());
}

TEST(VirtualRangesCounts, InconsistentCountsAreReported) {
  VirtualRanges released(8, 4, 2);
  released.release(5);  // not in use
  ASSERT_FALSE(released.check().ok());
  EXPECT_EQ(released.check().error().kind, ErrorKind::internal);
  EXPECT_EQ(released.check().error().message, "KV range 1: 0 in use and 1 idle, -1 and 1 counted");
  VirtualRanges full(1, 4, 2);
  KvRange range;
  full.take(range, kNone);
  EXPECT_TRUE(full.check().ok());
  full.take(range, kNone);  // above the limit
  ASSERT_FALSE(full.check().ok());
  EXPECT_EQ(full.check().error().kind, ErrorKind::internal);
  EXPECT_EQ(full.check().error().message, "KV ranges: 2 in use, 0 idle; 2 in use, 2 committed of 1 counted");
}

TEST(KvLayoutEdges, OneValueInOneHeadIsAValidLayer) {
  EXPECT_TRUE((KvLayout{find_format("f16"), 4, {{1, 1}}}.check().ok()));
  EXPECT_EQ((KvLayout{find_format("f16"), 4, {{1, 1}}}.block_bytes()), 16);
  EXPECT_TRUE((KvLayout{find_format("f16"), 4, {{1, 1 << 20}}}.check().ok()));
  EXPECT_TRUE((KvLayout{find_format("f16"), 4, {{1 << 20, 1}}}.check().ok()));
  const auto refused = KvLayout{find_format("f16"), 4, {{1, 1}, {0, 7}}}.check();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
  EXPECT_EQ(refused.error().message, "KV cache: layer 1 has 0 heads of 7 values");
}

}  // namespace
}  // namespace millrace
