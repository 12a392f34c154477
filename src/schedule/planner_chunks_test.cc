// The planner's second phase: chunks within the budgets, and the blocks they need.
#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

class Chunks : public ::testing::Test {
 protected:
  Chunks() : harness("fcfs:reserve=prompt") {}
  // A decoding stream with one block and all tokens but the last stored; if the block is full, its next token needs
  // another.
  Sequence& decode(RequestId id, bool full = false) {
    const int64_t computed = full ? 16 : 14;
    return harness.hold(harness.run(id, 10, computed - 9, computed, 64), 1);
  }

  PlannerHarness harness;
};

TEST_F(Chunks, RespectsTokenStreamAndOutputBudgets) {
  for (RequestId id : {1, 2, 3}) decode(id);
  EXPECT_EQ(harness.chunks(), "1:[14+1]* 2:[14+1]* 3:[14+1]*");
  harness.limits.batch_tokens = 2;
  EXPECT_EQ(harness.chunks(), "1:[14+1]* 2:[14+1]*");
  harness.limits.batch_tokens = 512;
  harness.limits.max_streams = 2;
  EXPECT_EQ(harness.chunks(), "1:[14+1]* 2:[14+1]*");
  harness.limits.max_streams = 8;
  harness.limits.outputs = 2;
  EXPECT_EQ(harness.chunks(), "1:[14+1]* 2:[14+1]*") << "no chunk of 0 tokens";
}

TEST_F(Chunks, StreamsThatAreHeldOrAwaitTheirTokenDoNotRun) {
  decode(1).held_back = true, decode(2);
  EXPECT_EQ(harness.chunks(), "2:[14+1]*");
  PlannerHarness prompts("prefill_first");
  prompts.run(1, 10, 0, 10), prompts.run(2, 10, 1, 10);
  EXPECT_EQ(prompts.chunks(), "2:[10+1]*") << "1 waits for its token: its prompt is complete";
}

// A prompt whose blocks come from the store got the whole budget and did not run; the prompts behind it waited for its
// load.
TEST_F(Chunks, LoadingStreamsGetNoShare) {
  PlannerHarness prompts("fcfs:reserve=prompt");
  prompts.limits.batch_tokens = 16;
  prompts.hold(prompts.run(1, 35, 0, 0), 3).phase = StreamPhase::loading;
  prompts.hold(prompts.run(2, 4, 0, 0), 1);
  EXPECT_EQ(prompts.chunks(), "2:[0+4]*");
}

TEST_F(Chunks, SpareBlockIsUsedOnce) {
  decode(1, true), decode(2, true);
  harness.free_blocks = 1;
  EXPECT_EQ(harness.chunks(), "squeeze 2; 1:[16+1]*");
  harness.free_blocks = 2;
  EXPECT_EQ(harness.chunks(), "1:[16+1]* 2:[16+1]*");
}

TEST_F(Chunks, VictimsTokensAndOutputsGoToTheNextStream) {
  decode(3), decode(1, true), decode(2);
  harness.free_blocks = 0;
  harness.limits.batch_tokens = 2;
  EXPECT_EQ(harness.chunks(), "squeeze 3; 1:[16+1]* 2:[14+1]*");
  harness.limits.batch_tokens = 512;
  harness.limits.outputs = 2;
  EXPECT_EQ(harness.chunks(), "squeeze 3; 1:[16+1]* 2:[14+1]*");
}

TEST_F(Chunks, VictimsSpareBlocksGoToTheNextStream) {
  decode(3, true), decode(2);
  harness.run(1, 32, 0, 0, 64);
  harness.free_blocks = 1;
  EXPECT_EQ(harness.chunks(), "squeeze 3; 2:[14+1]* 1:[0+32]*") << "the block that 3 held and the one planned for it";
}

TEST_F(Chunks, EachVictimReturnsItsBlocks) {
  decode(3, true), decode(2);
  harness.run(1, 64, 0, 0, 64);
  harness.free_blocks = 1;
  EXPECT_EQ(harness.chunks(), "squeeze 3 2 1;") << "three blocks where four are needed";
  harness.clear();
  decode(2), decode(3, true);
  harness.run(1, 48, 0, 0, 64);
  EXPECT_EQ(harness.chunks(), "squeeze 3 2; 1:[0+48]*");
}

TEST_F(Chunks, PlansAreIndependent) {
  harness.run(1, 64, 0, 0, 64);
  harness.free_blocks = 4;
  EXPECT_EQ(harness.chunks(), "1:[0+64]*");
  harness.clear();
  decode(3), decode(2);
  harness.run(1, 48, 0, 0, 64);
  harness.free_blocks = 0;
  EXPECT_EQ(harness.chunks(), "squeeze 3 2 1;") << "two blocks where three are needed";
}

TEST_F(Chunks, NonPreemptibleStreamIsNotSqueezed) {
  decode(1, true).non_preemptible = true;
  harness.free_blocks = 0;
  EXPECT_EQ(harness.chunks(), "");
  harness.streams[0]->kv.reserved_blocks = 2;
  harness.free_blocks = 1;
  EXPECT_EQ(harness.chunks(), "1:[16+1]*");
}

// Stored tokens are recomputed in one step, which takes a second per key read.
struct KeysCost final : CostModel {
  double swap = 0;
  double step_seconds(const StepShape& shape) const override { return static_cast<double>(shape.keys); }
  double swap_seconds(int64_t) const override { return swap; }
};

TEST_F(Chunks, SwapsIfSwappingIsFasterThanRecomputing) {
  KeysCost cost;
  harness.cost = &cost;
  decode(1, true), decode(2);
  harness.free_blocks = 0;
  struct Case {
    double swap;
    int64_t room;
    bool swaps;
  };
  for (const Case& one :
       {Case{0, 14, true}, {0, 13, false}, {6, 14, true}, {6.75, 14, true}, {7, 14, false}, {7.25, 14, false}}) {
    cost.swap = one.swap, harness.swap_tokens = one.room;
    EXPECT_EQ(harness.chunks(), one.swaps ? "squeeze 2~;" : "squeeze 2; 1:[16+1]*") << one.swap << " " << one.room;
  }
  cost.swap = 0, harness.swap_tokens = 14;
  harness.streams[1]->computed = 1;
  EXPECT_EQ(harness.chunks(), "squeeze 2~;") << "one token is worth it";
  harness.cost = nullptr;
  EXPECT_EQ(harness.chunks(), "squeeze 2; 1:[16+1]*") << "without a cost model nothing is swapped";
}

TEST_F(Chunks, StreamWithNothingStoredIsNotSwapped) {
  FixedCost cost;
  cost.swap = 0;
  harness.cost = &cost;
  decode(1, true);
  harness.hold(harness.run(2, 10, 0, 0, 64), 1);
  harness.free_blocks = 0;
  harness.swap_tokens = 100;
  EXPECT_EQ(harness.chunks(), "squeeze 2; 1:[16+1]*");
}

TEST_F(Chunks, TierSpaceIsUsedOnce) {
  KeysCost cost;
  harness.cost = &cost;
  harness.run(1, 32, 0, 0, 64), decode(2), decode(3);
  harness.free_blocks = 0;
  harness.swap_tokens = 28;
  EXPECT_EQ(harness.chunks(), "squeeze 3~ 2~;");
  harness.swap_tokens = 27;
  EXPECT_EQ(harness.chunks(), "squeeze 3~ 2;");
}

}  // namespace
}  // namespace millrace
