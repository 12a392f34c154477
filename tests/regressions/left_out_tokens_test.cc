// The planner counted blocks for tokens that --kv-ssd-fetch had left out of a stream, which have none: such a stream
// was promised memory that no stream could use, preempted others or was preempted itself for blocks that it did not
// need, and was recomputed although the tier had room for it. The tests ran such streams alone.
#include <gtest/gtest.h>

#include "schedule/planner.h"
#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using testing::PlannerHarness;

// 64 of 96 computed tokens were left out: 32 are in two blocks.
Sequence& stream_that_went_without(PlannerHarness& desk, RequestId id) {
  Sequence& s = desk.run(id, 90, 7, 96);
  s.kv.left_out = 64;
  desk.hold(s, 2);
  return s;
}

TEST(LeftOutTokens, AStreamRequestsOnlyTheBlocksItWillFill) {
  PlannerHarness desk("fcfs:reserve=prompt");
  Sequence& s = stream_that_went_without(desk, 1);
  desk.free_blocks = 1;
  EXPECT_EQ(desk.chunks(), "1:[96+1]*");  // its third block is the last free one
  EXPECT_EQ(desk.planner->promised_blocks(s, desk.limits), desk.limits.blocks_for(s.size() + 1 - s.kv.left_out));
}

TEST(LeftOutTokens, NoStreamIsPreemptedForBlocksThatStayEmpty) {
  PlannerHarness desk("fcfs:reserve=prompt");
  stream_that_went_without(desk, 1);
  desk.hold(desk.run(2, 20, 1, 20), 2);
  desk.free_blocks = 1;
  EXPECT_EQ(desk.chunks(), "1:[96+1]* 2:[20+1]*");
}

TEST(LeftOutTokens, TheTierNeedsRoomForStoredTokensOnly) {
  PlannerHarness desk("fcfs:reserve=prompt");
  testing::FixedCost cost;
  cost.swap = 0;  // cheaper than anything
  desk.cost = &cost;
  desk.hold(desk.run(1, 32, 1, 32), 2);
  stream_that_went_without(desk, 2);
  desk.free_blocks = 0;
  desk.swap_tokens = 40;
  EXPECT_EQ(desk.chunks(), "squeeze 2~;");
}

}  // namespace
}  // namespace millrace
