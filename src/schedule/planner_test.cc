#include "schedule/planner.h"

#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

TEST(Planner, DecodeComesFirstAndPromptsShareTheRest) {
  PlannerHarness harness("fcfs");
  harness.run(1, 100, 0, 0), harness.run(2, 8, 5, 12), harness.run(3, 50, 0, 20);
  harness.limits.batch_tokens = 64;
  EXPECT_EQ(harness.chunks(), "2:[12+1]* 1:[0+63]");
  harness.limits.batch_tokens = 200;
  EXPECT_EQ(harness.chunks(), "2:[12+1]* 1:[0+100]* 3:[20+30]*");
}

TEST(Planner, FullOutputBudgetHoldsBackTheLastToken) {
  PlannerHarness harness("fcfs");
  harness.run(1, 10, 0, 0), harness.run(2, 10, 0, 0);
  harness.limits.outputs = 1;
  EXPECT_EQ(harness.chunks(), "1:[0+10]* 2:[0+9]");
}

TEST(Planner, WholePromptsWaitForAnOutput) {
  PlannerHarness harness("fcfs");
  harness.run(1, 10, 0, 0), harness.run(2, 10, 0, 0);
  harness.limits.outputs = 1;
  harness.limits.whole_prompts = true;
  EXPECT_EQ(harness.chunks(), "1:[0+10]*");
}

TEST(Planner, AdmissionReservesWholeStreamsInOrder) {
  PlannerHarness harness("fcfs");
  harness.wait(2, 10, 0, 33), harness.wait(3, 10, 0, 1);
  harness.run(1, 10, 0, 0, 64).kv.reserved_blocks = 4;
  harness.limits.total_blocks = harness.free_blocks = 7;
  EXPECT_EQ(harness.places(), "admit 2;");  // 4 + 3 of 7; none left for 3
  harness.limits.total_blocks = harness.free_blocks = 6;
  EXPECT_EQ(harness.places(), "");  // 2 does not fit, and 3 does not overtake
  harness.limits.total_blocks = harness.free_blocks = 8;
  EXPECT_EQ(harness.places(), "admit 2 3;");
  harness.limits.max_streams = 2;
  EXPECT_EQ(harness.places(), "admit 2;");
}

TEST(Planner, PromptReservationAdmitsMoreAndPreemptsTheLast) {
  PlannerHarness harness("fcfs:reserve=prompt");
  harness.wait(1, 10, 0, 64), harness.wait(2, 10, 0, 64), harness.wait(3, 20, 0, 64);
  harness.limits.total_blocks = harness.free_blocks = 4;
  EXPECT_EQ(harness.places(), "admit 1 2 3;");  // 1 + 1 + 2 blocks, where whole promises would be 12
  harness.clear();
  // All three fill their blocks; the first one's next token wants another.
  harness.hold(harness.run(1, 10, 7, 16, 64), 1), harness.hold(harness.run(2, 10, 5, 14, 64), 1),
      harness.hold(harness.run(3, 20, 10, 29, 64), 2);
  harness.free_blocks = 0;
  EXPECT_EQ(harness.chunks(), "squeeze 3; 1:[16+1]* 2:[14+1]*");
}

TEST(Planner, StreamWithoutAVictimIsPreempted) {
  PlannerHarness harness("fcfs:reserve=prompt");
  harness.hold(harness.run(1, 10, 4, 13, 64), 1), harness.hold(harness.run(2, 10, 7, 16, 64), 1);
  harness.free_blocks = 0;
  EXPECT_EQ(harness.chunks(), "squeeze 2; 1:[13+1]*");
}

TEST(Planner, VictimsPlannedChunkIsWithdrawn) {
  PlannerHarness harness("fcfs:reserve=prompt");
  // 3 was admitted first (1 had been away), gets its chunk first, and loses it.
  harness.hold(harness.run(3, 10, 5, 14, 64), 1), harness.hold(harness.run(1, 10, 7, 16, 64), 1);
  harness.free_blocks = 0;
  EXPECT_EQ(harness.chunks(), "squeeze 3; 1:[16+1]*");
}

TEST(Planner, SharedBlocksAreNotReclaimed) {
  PlannerHarness harness("fcfs:reserve=prompt");
  harness.hold(harness.run(1, 10, 7, 16, 64), 1), harness.hold(harness.run(2, 10, 5, 14, 64), 1);
  harness.streams[1]->kv.shared_blocks = 1;  // sending 2 away frees nothing
  harness.free_blocks = 0;
  EXPECT_EQ(harness.chunks(), "squeeze 2 1;");
}

TEST(Planner, SwapsIfMovingIsCheaperThanComputing) {
  PlannerHarness harness("fcfs:reserve=prompt");
  FixedCost cost;
  harness.cost = &cost;
  harness.hold(harness.run(1, 10, 7, 16, 64), 1), harness.hold(harness.run(2, 10, 5, 14, 64), 1);
  harness.free_blocks = 0;
  harness.swap_tokens = 100;
  cost.swap = 0.001;
  EXPECT_EQ(harness.chunks(), "squeeze 2~;");  // 1 runs when 2's block has arrived in the tier
  harness.swap_tokens = 13;
  EXPECT_EQ(harness.chunks(), "squeeze 2; 1:[16+1]*");  // 14 tokens do not fit
  harness.swap_tokens = 100;
  cost.swap = 10;
  EXPECT_EQ(harness.chunks(), "squeeze 2; 1:[16+1]*");
  harness.leaving_blocks = 1;  // a stream is being swapped out already: no other one is preempted
  EXPECT_EQ(harness.chunks(), "2:[14+1]*");
}

TEST(Planner, BlocksFreedForARunningStreamAreNotGivenToTheQueue) {
  PlannerHarness harness("fcfs:reserve=prompt");
  harness.hold(harness.run(1, 10, 7, 16, 64), 1);  // its next token lacks a block
  harness.wait(2, 10, 0, 16);
  harness.free_blocks = 1;
  EXPECT_EQ(harness.places(), "");
  EXPECT_EQ(harness.chunks(), "1:[16+1]*");
  harness.free_blocks = 2;
  EXPECT_EQ(harness.places(), "admit 2;");
}

TEST(Planner, PreemptsOnlyIfItHelps) {
  PlannerHarness harness("priority");
  harness.hold(harness.run(1, 10, 1, 10, 11), 1);
  harness.wait(2, 100, 0, 110).request.priority = 5;
  harness.limits.total_blocks = 100;
  harness.free_blocks = 4;
  EXPECT_EQ(harness.places(), "");  // no victim makes room for 7 blocks and 1 to grow
  harness.clear();
  harness.hold(harness.run(1, 10, 1, 10, 11), 1);
  harness.wait(2, 50, 0, 110).request.priority = 5;
  EXPECT_EQ(harness.places(), "preempt 1; admit 2;");
}

}  // namespace
}  // namespace millrace
