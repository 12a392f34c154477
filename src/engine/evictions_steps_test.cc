// Streams with an evictor, step by step: when it chooses, which blocks return, what the executor hears of moved keys,
// and what a preempted stream computes again.
#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

// Keeps two sinks and the newest four tokens, and chooses whenever four more are stored: at 10, 14, 18, ... tokens.
EngineOptions evicting_options(const std::string& more = ",positions=text") {
  EngineOptions o = scripted_options(20);
  o.evictor = "streamingllm:sinks=2,window=4,slack=4" + more;
  return o;
}

TEST(EvictionsSteps, BlocksReturnWhenTheEvictorHasChosen) {
  ScriptedEngine e(evicting_options());
  e.add(1, scripted_request(1000, 7, 10));
  EXPECT_EQ(e.watch(), (Lines{"admit 1; 1:[0+7]* | 1 runs 7/8 2", "1:[7+1]* | 1 runs 8/9 2", "1:[8+1]* | 1 runs 9/10 3",
                              "1:[9+1]* | 1 runs 10/11 2", "1:[10+1]* | 1 runs 11/12 2", "1:[11+1]* | 1 runs 12/13 2",
                              "1:[12+1]* | 1 runs 13/14 3", "1:[13+1]* | 1 runs 14/15 2", "1:[14+1]* | 1 runs 15/16 2",
                              "1:[15+1]* | "}));
  const EngineStats stats = e.core->stats();
  EXPECT_EQ(stats.evicted_tokens, 8);
  EXPECT_EQ(stats.kv_blocks_free, 20);
  EXPECT_EQ(stats.kv_blocks_cached, 0) << "what is left is of no prompt";
  const RequestTimings& t = e.all.back().timings;
  EXPECT_EQ(t.evictions, 2);
  EXPECT_EQ(t.evicted_tokens, 8);
  EXPECT_EQ(t.kept_tokens, 8);
  EXPECT_EQ(t.left_out_tokens, 0) << "none of them was excluded by a load";
  // Slots 2 to 5 have got the newest four tokens; positions are those of the text.
  EXPECT_EQ(e.script.key_moves, (Lines{"changed 2 to 6 of 2 blocks", "changed 2 to 6 of 2 blocks"}));
  // Keys are counted without the evicted ones: 6 stored, and the tokens that run.
  EXPECT_EQ(e.script.shapes.at(3), "1 tokens 1 outputs 10 keys 10 pairs 0.001 s");
  EXPECT_EQ(e.script.shapes.at(4), "1 tokens 1 outputs 7 keys 7 pairs 0.001 s");
}

TEST(EvictionsSteps, WherePositionsCountStoredTokensKeysMove) {
  ScriptedEngine e(evicting_options(",positions=cache"));
  e.add(1, scripted_request(1000, 7, 10));
  e.run();
  EXPECT_EQ(e.script.key_moves, (Lines{"move 4 from 2 by -4", "changed 2 to 6 of 2 blocks", "move 4 from 2 by -4",
                                       "changed 2 to 6 of 2 blocks"}));
}

// A prompt that may be evicted is computed in pieces, none of which crosses a decision.
TEST(EvictionsSteps, NoChunkCrossesADecision) {
  ScriptedEngine e(evicting_options(",positions=text,prompt=evicted"));
  e.add(1, scripted_request(1000, 19, 2));
  EXPECT_EQ(e.watch(), (Lines{"admit 1; 1:[0+10] | 1 runs 10/19 2", "1:[10+4] | 1 runs 14/19 2",
                              "1:[14+4] | 1 runs 18/19 2", "1:[18+1]* | 1 runs 19/20 2", "1:[19+1]* | "}));
  e.add(2, scripted_request(2000, 19, 2));
  StepPlan plan;
  plan.admitted = {2};
  plan.chunks = {{2, 0, 11, false}};
  EXPECT_FALSE(e.core->replay(plan, e.events).ok());
  plan.admitted.clear();
  plan.chunks = {{2, 0, 10, false}};
  EXPECT_TRUE(e.core->replay(plan, e.events).ok());
}

// All that was computed is computed again, evicted tokens too.
TEST(EvictionsSteps, APreemptedStreamStartsAgain) {
  ScriptedEngine e(evicting_options());
  e.add(1, scripted_request(1000, 7, 10));
  for (int i = 0; i < 5; ++i) e.step();
  EXPECT_EQ(e.streams(), "1 runs 11/12 2");
  StepPlan away;
  away.preempted = {{1, false}};
  ASSERT_TRUE(e.core->replay(away, e.events).ok());
  EXPECT_EQ(e.streams(), "1 waits 0/12 0 !1");
  EXPECT_EQ(e.core->stats().recomputed_tokens, 11);
  EXPECT_EQ(e.watch(2), (Lines{"admit 1; 1:[0+10] | 1 runs 10/12 2 !1", "1:[10+2]* | 1 runs 12/13 2 !1"}));
  e.run();
  EXPECT_EQ(e.core->stats().generated_tokens, 10);
  EXPECT_EQ(e.all.back().timings.evictions, 2);
}

// A request may name another evictor, or none.
TEST(EvictionsSteps, ARequestNamesItsEvictor) {
  ScriptedEngine e(evicting_options());
  Request request = scripted_request(1000, 7, 10);
  request.evictor = "none";
  e.add(1, request);
  e.run();
  EXPECT_EQ(e.core->stats().evicted_tokens, 0);
  EXPECT_EQ(e.core->stats().kv_blocks_cached, 4);
  request = scripted_request(2000, 7, 10);
  request.evictor = "window:budget=6,slack=10,positions=text";
  e.add(2, request);
  e.run();
  EXPECT_EQ(e.core->stats().evicted_tokens, 10);
}

}  // namespace
}  // namespace millrace
