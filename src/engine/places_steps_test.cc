// Which streams are admitted, preempted, swapped and resumed, step by step, in a pool of a few blocks: exact plans,
// streams and counters. The executor compares every stored key with its token before each chunk.
#include "engine/scripted_engine_test.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

EngineOptions growing_places(int64_t blocks, int64_t swap_tokens = 0, bool prefix_cache = false) {
  EngineOptions o = scripted_options(blocks);
  o.policy = "fcfs:reserve=prompt";
  o.prefix_cache = prefix_cache;
  o.kv_tier = memory_tier(swap_tokens);
  return o;
}

// Two streams that grow beyond the six blocks, then a short one.
void add_three(ScriptedEngine& e) {
  e.add(1, scripted_request(1000, 7, 8));
  e.add(2, scripted_request(2000, 7, 8));
  e.add(3, scripted_request(3000, 3, 2));
}

TEST(PlacesSteps, ReservedStreamWaitsForBlocksInQueueOrder) {
  ScriptedEngine e(scripted_options(6));
  e.add(1, scripted_request(1000, 6, 4));
  e.add(2, scripted_request(2000, 5, 4));
  e.add(3, scripted_request(3000, 13, 2));
  e.add(4, scripted_request(4000, 3, 2));
  EXPECT_EQ(e.watch(),
            (Lines{"admit 1 2; 1:[0+6]* 2:[0+5]* | 1 runs 6/7 2, 2 runs 5/6 2, 3 waits 0/13 0, 4 waits 0/3 0",
                   "1:[6+1]* 2:[5+1]* | 1 runs 7/8 2, 2 runs 6/7 2, 3 waits 0/13 0, 4 waits 0/3 0",
                   "1:[7+1]* 2:[6+1]* | 1 runs 8/9 2, 2 runs 7/8 2, 3 waits 0/13 0, 4 waits 0/3 0",
                   "1:[8+1]* 2:[7+1]* | 3 waits 0/13 0, 4 waits 0/3 0",
                   "admit 3 4; 3:[0+13]* 4:[0+3]* | 3 runs 13/14 4, 4 runs 3/4 1", "3:[13+1]* 4:[3+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 6 prompt 27 cached 0 generated 12 preempted 0 again 0 out 0 in 0");
  EXPECT_EQ(e.blocks(), "0 0c 0c 0c 0c 0c");
}

TEST(PlacesSteps, GrowingStreamsPreemptTheLastForRecompute) {
  ScriptedEngine e(growing_places(6));
  add_three(e);
  EXPECT_EQ(e.watch(),
            (Lines{"admit 1 2 3; 1:[0+7]* 2:[0+7]* 3:[0+2] | 1 runs 7/8 2, 2 runs 7/8 2, 3 runs 2/3 1",
                   "1:[7+1]* 2:[7+1]* 3:[2+1]* | 1 runs 8/9 2, 2 runs 8/9 2, 3 runs 3/4 1",
                   "squeeze 3; 1:[8+1]* 2:[8+1]* | 1 runs 9/10 3, 2 runs 9/10 3, 3 waits 0/4 0 !1",
                   "1:[9+1]* 2:[9+1]* | 1 runs 10/11 3, 2 runs 10/11 3, 3 waits 0/4 0 !1",
                   "1:[10+1]* 2:[10+1]* | 1 runs 11/12 3, 2 runs 11/12 3, 3 waits 0/4 0 !1",
                   "1:[11+1]* 2:[11+1]* | 1 runs 12/13 3, 2 runs 12/13 3, 3 waits 0/4 0 !1",
                   "squeeze 2; 1:[12+1]* | 1 runs 13/14 4, 2 waits 0/13 0 !1, 3 waits 0/4 0 !1",
                   "1:[13+1]* | 2 waits 0/13 0 !1, 3 waits 0/4 0 !1",
                   "admit 2 3; 2:[0+13]* 3:[0+3] | 2 runs 13/14 4 !1, 3 runs 3/4 1 !1", "2:[13+1]* 3:[3+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 10 prompt 27 cached 0 generated 18 preempted 2 again 15 out 0 in 0");
}

TEST(PlacesSteps, PreemptedStreamReusesItsBlocksFromThePrefixIndex) {
  ScriptedEngine e(growing_places(6, 0, true));
  add_three(e);
  EXPECT_EQ(e.watch(), (Lines{"admit 1 2 3; 1:[0+7]* 2:[0+7]* 3:[0+2] | 1 runs 7/8 2, 2 runs 7/8 2, 3 runs 2/3 1",
                              "1:[7+1]* 2:[7+1]* 3:[2+1]* | 1 runs 8/9 2, 2 runs 8/9 2, 3 runs 3/4 1",
                              "squeeze 3; 1:[8+1]* 2:[8+1]* | 1 runs 9/10 3, 2 runs 9/10 3, 3 waits 0/4 0 !1",
                              "1:[9+1]* 2:[9+1]* | 1 runs 10/11 3, 2 runs 10/11 3, 3 waits 0/4 0 !1",
                              "1:[10+1]* 2:[10+1]* | 1 runs 11/12 3, 2 runs 11/12 3, 3 waits 0/4 0 !1",
                              "1:[11+1]* 2:[11+1]* | 1 runs 12/13 3, 2 runs 12/13 3, 3 waits 0/4 0 !1",
                              "squeeze 2; 1:[12+1]* | 1 runs 13/14 4, 2 waits 0/13 0 !1, 3 waits 0/4 0 !1",
                              "1:[13+1]* | 2 waits 0/13 0 !1, 3 waits 0/4 0 !1",
                              "admit 2 3; 2:[8+5]* 3:[0+4]* | 2 runs 13/14 4 !1", "2:[13+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 10 prompt 20 cached 0 generated 18 preempted 2 again 15 out 0 in 0");
}

TEST(PlacesSteps, SwappedStreamsResumeWithTheirData) {
  ScriptedEngine e(growing_places(6, 20));
  e.script.swap_seconds = 1e-3;
  add_three(e);
  EXPECT_EQ(
      e.watch(),
      (Lines{"admit 1 2 3; 1:[0+7]* 2:[0+7]* 3:[0+2] | 1 runs 7/8 2, 2 runs 7/8 2, 3 runs 2/3 1",
             "1:[7+1]* 2:[7+1]* 3:[2+1]* | 1 runs 8/9 2, 2 runs 8/9 2, 3 runs 3/4 1",
             "squeeze 3~; 1:[8+1]* | 1 runs 9/10 3, 2 runs 8/9 2, 3 leaves 3/4 1 !1",
             "1:[9+1]* 2:[8+1]* | 1 runs 10/11 3, 2 runs 9/10 3, 3 away 3/4 0 !1",
             "1:[10+1]* 2:[9+1]* | 1 runs 11/12 3, 2 runs 10/11 3, 3 away 3/4 0 !1",
             "1:[11+1]* 2:[10+1]* | 1 runs 12/13 3, 2 runs 11/12 3, 3 away 3/4 0 !1",
             "squeeze 2~; | 1 runs 12/13 3, 2 leaves 11/12 3 !1, 3 away 3/4 0 !1",
             "1:[12+1]* | 1 runs 13/14 4, 2 away 11/12 0 !1, 3 away 3/4 0 !1",
             "1:[13+1]* | 2 away 11/12 0 !1, 3 away 3/4 0 !1", "admit 2 3; | 2 loads 11/12 3 !1, 3 loads 3/4 1 !1",
             "2:[11+1]* 3:[3+1]* | 2 runs 12/13 3 !1", "2:[12+1]* | 2 runs 13/14 4 !1", "2:[13+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 11 prompt 17 cached 0 generated 18 preempted 2 again 0 out 14 in 14");
  EXPECT_EQ(e.script.erased, 2);
  EXPECT_EQ(e.core->snapshot().swap_free_tokens, 20);
}

// Steps until the third stream's swap is under way.
void begin_swap(ScriptedEngine& e) {
  e.script.swap_seconds = 1e-3;
  e.script.tier_state = TierState::busy;
  add_three(e);
  for (int i = 0; i < 3; ++i) e.step();
  EXPECT_EQ(e.streams(), "1 runs 9/10 3, 2 runs 8/9 2, 3 leaves 3/4 1 !1");
  EXPECT_EQ(e.core->snapshot().swap_free_tokens, 17);
}

TEST(PlacesSteps, SlowSwapOutHoldsBlocksUntilDone) {
  ScriptedEngine e(growing_places(6, 20));
  begin_swap(e);
  EXPECT_EQ(e.watch(3), (Lines{"1:[9+1]* | 1 runs 10/11 3, 2 runs 8/9 2, 3 leaves 3/4 1 !1",
                               "1:[10+1]* | 1 runs 11/12 3, 2 runs 8/9 2, 3 leaves 3/4 1 !1",
                               "1:[11+1]* | 1 runs 12/13 3, 2 runs 8/9 2, 3 leaves 3/4 1 !1"}));
  const EngineStats stats = e.core->stats();
  EXPECT_EQ(stats.running, 2);
  EXPECT_EQ(stats.waiting, 1);  // a stream being swapped out counts as waiting
  e.script.tier_state = TierState::ready;
  EXPECT_EQ(e.watch(2), (Lines{"squeeze 2~; 1:[12+1]* | 1 runs 13/14 4, 2 leaves 8/9 2 !1, 3 away 3/4 0 !1",
                               "1:[13+1]* | 2 away 8/9 0 !1, 3 away 3/4 0 !1"}));
  e.run();
  EXPECT_EQ(e.figures(), "steps 14 prompt 17 cached 0 generated 18 preempted 2 again 0 out 11 in 11");
}

TEST(PlacesSteps, FailedSwapOutIsRecomputed) {
  ScriptedEngine e(growing_places(6, 20));
  begin_swap(e);
  e.script.tier_state = TierState::failed;
  EXPECT_EQ(e.watch(2), (Lines{"1:[9+1]* 2:[8+1]* | 1 runs 10/11 3, 2 runs 9/10 3, 3 waits 0/4 0 !1",
                               "1:[10+1]* 2:[9+1]* | 1 runs 11/12 3, 2 runs 10/11 3, 3 waits 0/4 0 !1"}));
  EXPECT_EQ(e.core->snapshot().swap_free_tokens, 20);
  e.script.tier_state = TierState::ready;
  e.run();
  EXPECT_EQ(e.figures(), "steps 12 prompt 20 cached 0 generated 18 preempted 2 again 3 out 14 in 11");
}

TEST(PlacesSteps, FullTierFallsBackToRecompute) {
  ScriptedEngine e(growing_places(6, 20));
  e.script.swap_seconds = 1e-3;
  e.script.put_fails = true;
  add_three(e);
  EXPECT_EQ(e.watch(5), (Lines{"admit 1 2 3; 1:[0+7]* 2:[0+7]* 3:[0+2] | 1 runs 7/8 2, 2 runs 7/8 2, 3 runs 2/3 1",
                               "1:[7+1]* 2:[7+1]* 3:[2+1]* | 1 runs 8/9 2, 2 runs 8/9 2, 3 runs 3/4 1",
                               "squeeze 3~; 1:[8+1]* | 1 runs 9/10 3, 2 runs 8/9 2, 3 waits 0/4 0 !1",
                               "1:[9+1]* 2:[8+1]* | 1 runs 10/11 3, 2 runs 9/10 3, 3 waits 0/4 0 !1",
                               "1:[10+1]* 2:[9+1]* | 1 runs 11/12 3, 2 runs 10/11 3, 3 waits 0/4 0 !1"}));
  e.run();
  EXPECT_EQ(e.figures(), "steps 11 prompt 27 cached 0 generated 18 preempted 2 again 14 out 0 in 0");
}

TEST(PlacesSteps, SwapInThatCannotStartIsRecomputed) {
  ScriptedEngine e(growing_places(6, 20));
  e.script.get_fails = true;
  e.script.swap_seconds = 1e-3;
  add_three(e);
  EXPECT_EQ(e.watch(), (Lines{"admit 1 2 3; 1:[0+7]* 2:[0+7]* 3:[0+2] | 1 runs 7/8 2, 2 runs 7/8 2, 3 runs 2/3 1",
                              "1:[7+1]* 2:[7+1]* 3:[2+1]* | 1 runs 8/9 2, 2 runs 8/9 2, 3 runs 3/4 1",
                              "squeeze 3~; 1:[8+1]* | 1 runs 9/10 3, 2 runs 8/9 2, 3 leaves 3/4 1 !1",
                              "1:[9+1]* 2:[8+1]* | 1 runs 10/11 3, 2 runs 9/10 3, 3 away 3/4 0 !1",
                              "1:[10+1]* 2:[9+1]* | 1 runs 11/12 3, 2 runs 10/11 3, 3 away 3/4 0 !1",
                              "1:[11+1]* 2:[10+1]* | 1 runs 12/13 3, 2 runs 11/12 3, 3 away 3/4 0 !1",
                              "squeeze 2~; | 1 runs 12/13 3, 2 leaves 11/12 3 !1, 3 away 3/4 0 !1",
                              "1:[12+1]* | 1 runs 13/14 4, 2 away 11/12 0 !1, 3 away 3/4 0 !1",
                              "1:[13+1]* | 2 away 11/12 0 !1, 3 away 3/4 0 !1",
                              "admit 2 3; 2:[0+12]* 3:[0+4]* | 2 runs 12/13 3 !1", "2:[12+1]* | 2 runs 13/14 4 !1",
                              "2:[13+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 11 prompt 27 cached 0 generated 18 preempted 2 again 14 out 14 in 0");
  EXPECT_EQ(e.core->snapshot().swap_free_tokens, 20);
}

TEST(PlacesSteps, FailedSwapInKeepsBlocksAndIsRecomputed) {
  ScriptedEngine e(growing_places(6, 20));
  e.script.swap_seconds = 1e-3;
  add_three(e);
  while (e.streams().find("loads") == std::string::npos) e.step();
  e.script.tier_state = TierState::busy;
  EXPECT_EQ(e.watch(2), (Lines{" | 2 loads 11/12 3 !1, 3 loads 3/4 1 !1", " | 2 loads 11/12 3 !1, 3 loads 3/4 1 !1"}));
  e.script.tier_state = TierState::failed;
  EXPECT_EQ(e.watch(),
            (Lines{"2:[0+12]* 3:[0+4]* | 2 runs 12/13 3 !1", "2:[12+1]* | 2 runs 13/14 4 !1", "2:[13+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 11 prompt 27 cached 0 generated 18 preempted 2 again 14 out 14 in 14");
  EXPECT_EQ(e.core->snapshot().swap_free_tokens, 20);
}

TEST(PlacesSteps, CancelledStreamIsRemovedFromTheTier) {
  for (bool leaves : {true, false}) {
    ScriptedEngine e(growing_places(6, 20));
    begin_swap(e);
    if (!leaves) e.script.tier_state = TierState::ready;
    if (!leaves) e.step();
    EXPECT_NE(e.streams().find(leaves ? "3 leaves" : "3 away"), std::string::npos);
    e.core->cancel(3);
    e.step();
    EXPECT_EQ(e.core->snapshot().swap_free_tokens, 20);
    EXPECT_EQ(e.streams().find("3 "), std::string::npos);
    EXPECT_EQ(e.events.front().finish, FinishReason::cancelled);
    e.script.tier_state = TierState::ready;
    e.run();
    EXPECT_EQ(e.core->stats().kv_blocks_free, 6);
  }
}

TEST(PlacesSteps, PreemptedStreamsQueueBeforeLaterArrivals) {
  ScriptedEngine e(growing_places(6));
  add_three(e);
  e.step();
  e.step();
  e.add(4, scripted_request(4000, 20, 1));
  e.add(5, scripted_request(5000, 2, 1));
  e.step();
  EXPECT_EQ(e.streams(), "1 runs 9/10 3, 2 runs 9/10 3, 3 waits 0/4 0 !1, 4 waits 0/20 0, 5 waits 0/2 0");
  e.run();
  std::vector<RequestId> ended;
  for (const TokenEvent& event : e.all)
    if (event.last) ended.push_back(event.request);
  EXPECT_EQ(ended, (std::vector<RequestId>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace millrace
