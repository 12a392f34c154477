#include "schedule/planner.h"

#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

TEST(Planner, DecodeComesFirstAndPromptsShareTheRest) {
  Desk desk("fcfs");
  desk.run(1, 100, 0, 0), desk.run(2, 8, 5, 12), desk.run(3, 50, 0, 20);
  desk.limits.batch_tokens = 64;
  EXPECT_EQ(desk.chunks(), "2:[12+1]* 1:[0+63]");
  desk.limits.batch_tokens = 200;
  EXPECT_EQ(desk.chunks(), "2:[12+1]* 1:[0+100]* 3:[20+30]*");
}

TEST(Planner, FullOutputBudgetHoldsBackTheLastToken) {
  Desk desk("fcfs");
  desk.run(1, 10, 0, 0), desk.run(2, 10, 0, 0);
  desk.limits.outputs = 1;
  EXPECT_EQ(desk.chunks(), "1:[0+10]* 2:[0+9]");
}

TEST(Planner, AdmissionReservesWholeStreamsInOrder) {
  Desk desk("fcfs");
  desk.wait(2, 10, 0, 33), desk.wait(3, 10, 0, 1);
  desk.run(1, 10, 0, 0, 64).kv.reserved_blocks = 4;
  desk.limits.total_blocks = desk.free_blocks = 7;
  EXPECT_EQ(desk.places(), "admit 2;");  // 4 + 3 of 7; none left for 3
  desk.limits.total_blocks = desk.free_blocks = 6;
  EXPECT_EQ(desk.places(), "");  // 2 does not fit, and 3 does not overtake
  desk.limits.total_blocks = desk.free_blocks = 8;
  EXPECT_EQ(desk.places(), "admit 2 3;");
  desk.limits.max_streams = 2;
  EXPECT_EQ(desk.places(), "admit 2;");
}

TEST(Planner, PromptReservationAdmitsMoreAndPreemptsTheLast) {
  Desk desk("fcfs:reserve=prompt");
  desk.wait(1, 10, 0, 64), desk.wait(2, 10, 0, 64), desk.wait(3, 20, 0, 64);
  desk.limits.total_blocks = desk.free_blocks = 4;
  EXPECT_EQ(desk.places(), "admit 1 2 3;");  // 1 + 1 + 2 blocks, where whole promises would be 12
  desk.clear();
  // All three fill their blocks; the first one's next token wants another.
  desk.hold(desk.run(1, 10, 7, 16, 64), 1), desk.hold(desk.run(2, 10, 5, 14, 64), 1),
      desk.hold(desk.run(3, 20, 10, 29, 64), 2);
  desk.free_blocks = 0;
  EXPECT_EQ(desk.chunks(), "squeeze 3; 1:[16+1]* 2:[14+1]*");
}

TEST(Planner, StreamWithoutAVictimIsPreempted) {
  Desk desk("fcfs:reserve=prompt");
  desk.hold(desk.run(1, 10, 4, 13, 64), 1), desk.hold(desk.run(2, 10, 7, 16, 64), 1);
  desk.free_blocks = 0;
  EXPECT_EQ(desk.chunks(), "squeeze 2; 1:[13+1]*");
}

TEST(Planner, VictimsPlannedChunkIsWithdrawn) {
  Desk desk("fcfs:reserve=prompt");
  // 3 was admitted first (1 had been away), gets its chunk first, and loses it.
  desk.hold(desk.run(3, 10, 5, 14, 64), 1), desk.hold(desk.run(1, 10, 7, 16, 64), 1);
  desk.free_blocks = 0;
  EXPECT_EQ(desk.chunks(), "squeeze 3; 1:[16+1]*");
}

TEST(Planner, SharedBlocksAreNotReclaimed) {
  Desk desk("fcfs:reserve=prompt");
  desk.hold(desk.run(1, 10, 7, 16, 64), 1), desk.hold(desk.run(2, 10, 5, 14, 64), 1);
  desk.streams[1]->kv.shared_blocks = 1;  // sending 2 away frees nothing
  desk.free_blocks = 0;
  EXPECT_EQ(desk.chunks(), "squeeze 2 1;");
}

TEST(Planner, SwapsIfMovingIsCheaperThanComputing) {
  Desk desk("fcfs:reserve=prompt");
  FixedCost cost;
  desk.cost = &cost;
  desk.hold(desk.run(1, 10, 7, 16, 64), 1), desk.hold(desk.run(2, 10, 5, 14, 64), 1);
  desk.free_blocks = 0;
  desk.swap_tokens = 100;
  cost.swap = 0.001;
  EXPECT_EQ(desk.chunks(), "squeeze 2~;");  // 1 runs when 2's block has arrived in the tier
  desk.swap_tokens = 13;
  EXPECT_EQ(desk.chunks(), "squeeze 2; 1:[16+1]*");  // 14 tokens do not fit
  desk.swap_tokens = 100;
  cost.swap = 10;
  EXPECT_EQ(desk.chunks(), "squeeze 2; 1:[16+1]*");
  desk.leaving_blocks = 1;  // a stream is being swapped out already: no other one is preempted
  EXPECT_EQ(desk.chunks(), "2:[14+1]*");
}

TEST(Planner, BlocksFreedForARunningStreamAreNotGivenToTheQueue) {
  Desk desk("fcfs:reserve=prompt");
  desk.hold(desk.run(1, 10, 7, 16, 64), 1);  // its next token lacks a block
  desk.wait(2, 10, 0, 16);
  desk.free_blocks = 1;
  EXPECT_EQ(desk.places(), "");
  EXPECT_EQ(desk.chunks(), "1:[16+1]*");
  desk.free_blocks = 2;
  EXPECT_EQ(desk.places(), "admit 2;");
}

TEST(Planner, PreemptsOnlyIfItHelps) {
  Desk desk("priority");
  desk.hold(desk.run(1, 10, 1, 10, 11), 1);
  desk.wait(2, 100, 0, 110).request.priority = 5;
  desk.limits.total_blocks = 100;
  desk.free_blocks = 4;
  EXPECT_EQ(desk.places(), "");  // no victim makes room for 7 blocks and 1 to grow
  desk.clear();
  desk.hold(desk.run(1, 10, 1, 10, 11), 1);
  desk.wait(2, 50, 0, 110).request.priority = 5;
  EXPECT_EQ(desk.places(), "preempt 1; admit 2;");
}

}  // namespace
}  // namespace millrace
