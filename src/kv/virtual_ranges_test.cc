// VirtualRanges: its counts, which block is allocated next, and which memory is reclaimed when.
#include "kv/virtual_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/philox.h"

namespace millrace {
namespace {

using Given = std::vector<std::pair<BlockId, int64_t>>;

TEST(VirtualRanges, BlocksAreAllocatedInOrderRangeByRange) {
  VirtualRanges ranges(20, 4, 5);
  EXPECT_EQ(ranges.ids(), 20);
  KvRange a, b;
  const auto none = [](BlockId, int64_t) { FAIL(); };
  for (BlockId expected : {0, 1, 2}) EXPECT_EQ(ranges.take(a, none), expected);
  EXPECT_EQ(ranges.take(b, none), 4);
  for (BlockId expected : {3, 8, 9}) EXPECT_EQ(ranges.take(a, none), expected);  // a's range is full: it gets another
  EXPECT_EQ(a.index, 2);
  ranges.release(9);
  EXPECT_EQ(ranges.take(a, none), 9) << "truncated at its end, it grows there again";
  ranges.release(8);
  EXPECT_EQ(ranges.take(a, none), 10) << "in the middle it does not";
  EXPECT_EQ(ranges.in_use(), 7);
  EXPECT_EQ(ranges.committed(), 8);
  EXPECT_TRUE(ranges.check().ok());
}

TEST(VirtualRanges, ClosedIdleRangeIsReusedNextWithItsPages) {
  VirtualRanges ranges(20, 4, 5);
  KvRange a, b, c;
  const auto none = [](BlockId, int64_t) { FAIL(); };
  for (int i = 0; i < 3; ++i) ranges.take(a, none);
  ranges.take(b, none);
  ranges.close(a);
  EXPECT_EQ(a.index, -1);
  ranges.close(a);  // a second call changes nothing
  EXPECT_EQ(ranges.take(c, none), 8) << "its blocks are still in use";
  ranges.close(c);
  for (BlockId block : {0, 2, 1}) ranges.release(block);
  ranges.release(8);
  EXPECT_EQ(ranges.take(a, none), 8) << "the one that was released last";
  EXPECT_EQ(ranges.take(c, none), 0);
  EXPECT_EQ(ranges.committed(), 5);
  EXPECT_TRUE(ranges.check().ok());
}

TEST(VirtualRanges, MemoryIsReclaimedFromUnownedRangesFirst) {
  VirtualRanges ranges(8, 4, 6);
  KvRange a, b, c, d;
  Given given;
  const auto note = [&](BlockId first, int64_t count) { given.emplace_back(first, count); };
  for (int i = 0; i < 4; ++i) ranges.take(a, note);
  for (int i = 0; i < 3; ++i) ranges.take(b, note);
  ranges.take(c, note);
  for (BlockId block : {1, 2}) ranges.release(block);  // a continues
  for (BlockId block : {4, 5}) ranges.release(block);
  ranges.close(b);  // b's block 6 is in use
  EXPECT_TRUE(given.empty()) << "not before the limit is reached";
  ranges.take(d, note);
  EXPECT_EQ(given, (Given{{4, 2}})) << "all contiguous idle blocks of the unowned range";
  EXPECT_EQ(ranges.committed(), 7);
  ranges.take(d, note);
  EXPECT_EQ(given.size(), 1u) << "there is memory for one more";
  ranges.take(d, note);
  EXPECT_EQ(given, (Given{{4, 2}, {1, 2}})) << "then of an owned range";
  EXPECT_TRUE(ranges.check().ok());
}

TEST(VirtualRanges, AtMostSixteenBlocksAreReclaimedAtATime) {
  VirtualRanges ranges(40, 40, 3);
  KvRange a, b;
  Given given;
  for (int i = 0; i < 40; ++i) ranges.take(a, [](BlockId, int64_t) { FAIL(); });
  for (BlockId block = 0; block < 40; ++block) ranges.release(block);
  const auto note = [&](BlockId first, int64_t count) { given.emplace_back(first, count); };
  ranges.take(b, note);
  EXPECT_EQ(given, (Given{{0, 16}}));
  EXPECT_EQ(ranges.committed(), 25);
}

TEST(VirtualRanges, AnyBlockIsUsedIfNoRangeIsIdle) {
  VirtualRanges ranges(8, 2, 3);
  const auto none = [](BlockId, int64_t) {};
  KvRange owned[2], left, more;
  for (KvRange& range : owned) ranges.take(range, none);
  ranges.take(left, none);
  ranges.close(left);  // 4 is in use, 5 has no owner
  EXPECT_EQ(ranges.take(more, none), 5) << "of an unowned range";
  EXPECT_EQ(more.index, -1);
  std::set<BlockId> rest = {ranges.take(more, none), ranges.take(more, none)};
  EXPECT_EQ(rest, (std::set<BlockId>{1, 3})) << "then of an owned range";
}

// Random streams: no block is allocated twice, only idle memory is reclaimed, and every count is exact.
TEST(VirtualRanges, CountsHoldUnderRandomUse) {
  constexpr int64_t kLimit = 14;
  VirtualRanges ranges(kLimit, 5, 7);
  std::vector<KvRange> streams(5);
  std::set<BlockId> used, idle;
  const auto give_back = [&](BlockId first, int64_t count) {
    ASSERT_EQ(static_cast<int64_t>(used.size() + idle.size()), kLimit) << "before the limit";
    for (BlockId block = first; block < first + count; ++block) ASSERT_EQ(idle.erase(block), 1u);
  };
  for (uint64_t step = 0; step < 20'000; ++step) {
    const auto draw = philox4x32(8, step, 0);
    KvRange& stream = streams[draw[0] % streams.size()];
    if (draw[1] % 8 == 0) {
      ranges.close(stream);
    } else if (draw[1] % 8 < 5 && ranges.in_use() < kLimit) {
      const BlockId before = stream.index >= 0 ? stream.index : -1;
      const BlockId block = ranges.take(stream, give_back);
      ASSERT_TRUE(used.insert(block).second);
      idle.erase(block);
      ASSERT_TRUE(before < 0 || stream.index != before || block / 5 == before);
    } else if (!used.empty()) {
      auto at = used.begin();
      std::advance(at, draw[2] % used.size());
      ranges.release(*at);
      idle.insert(*at);
      used.erase(at);
    }
    ASSERT_EQ(ranges.in_use(), static_cast<int64_t>(used.size()));
    ASSERT_EQ(ranges.committed(), static_cast<int64_t>(used.size() + idle.size()));
    ASSERT_TRUE(ranges.check().ok()) << ranges.check().error().message;
  }
}

}  // namespace
}  // namespace millrace
