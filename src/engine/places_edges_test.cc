// The engine's rare moments, step by step: answers that were preempted, searches that end early, blocks that take long
// to move, and a pool as large as a snapshot has cells.
#include "engine/scripted_engine_test.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

constexpr RequestId kSecondAnswer = RequestId{1} << kAnswerShift | 1;

EngineOptions edge_places(int64_t blocks, bool prefix_cache = false) {
  EngineOptions o = scripted_options(blocks);
  o.prefix_cache = prefix_cache;
  return o;
}

Request two_answers(int64_t prompt, int64_t answer) {
  Request request = scripted_request(1000, prompt, answer);
  request.n = 2;
  return request;
}

// All streams run in order; remembers which blocks they shared and which left whole.
class Watching final : public SchedulerPolicy {
 public:
  explicit Watching(Lines& shared, Lines& left) : shared_(shared), left_(left) {}
  void share(const ScheduleView& view, int64_t, std::vector<Share>& out) override {
    std::string line;
    for (const Sequence* s : view.running) {
      out.push_back({s, s->remaining()});
      line += fmt::format("{}{}.{} shares {}", line.empty() ? "" : ", ", request_of(s->id), answer_of(s->id),
                          s->kv.shared_blocks);
    }
    shared_.push_back(line);
  }
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return nullptr; }
  void observe(const ScheduleEvent& event) override {
    if (event.kind != ScheduleEvent::Kind::left) return;
    left_.push_back(
        fmt::format("{}.{}{}", request_of(event.stream->id), answer_of(event.stream->id), event.whole ? " whole" : ""));
  }

 private:
  Lines &shared_, &left_;
};

// An answer that was preempted after its first token is computed from its beginning; it does not take over the prompt
// of the first answer, behind which its own token stands.
TEST(PlacesEdges, APreemptedAnswerGoesOnByItself) {
  ScriptedEngine e(edge_places(20));
  e.add(1, two_answers(10, 4));
  e.step();
  EXPECT_EQ(e.step(), "admit 1.1; 1:[10+1]* 1.1:[9+1]*");
  StepPlan away;
  away.preempted = {{kSecondAnswer, false}};
  ASSERT_TRUE(e.core->replay(away, e.events).ok());
  EXPECT_EQ(e.streams(), "1 runs 11/12 3, 1.1 waits 0/11 0 +9 !1");
  EXPECT_EQ(e.step(), "admit 1.1; 1:[11+1]* 1.1:[0+11]*");
  e.run();
  EXPECT_EQ(e.core->stats().kv_blocks_free, 20);
}

// The first answer leaves memory in the step in which the second one would have taken over its prompt.
TEST(PlacesEdges, AnAnswerWhoseFirstOneHasJustLeftSharesNothing) {
  Lines shared, left;
  ScriptedEngine e(edge_places(20), std::make_unique<Watching>(shared, left));
  e.add(1, two_answers(10, 4));
  EXPECT_EQ(e.step(), "admit 1; 1:[0+10]*");
  StepPlan plan;
  plan.preempted = {{1, false}};
  plan.admitted = {kSecondAnswer};
  ASSERT_TRUE(e.core->replay(plan, e.events).ok());
  EXPECT_EQ(e.streams(), "1.1 runs 0/10 0, 1 waits 0/11 0 !1");
  shared.clear();
  e.step();
  ASSERT_FALSE(shared.empty());
  EXPECT_TRUE(shared[0].starts_with("1.1 shares 0")) << shared[0];
  e.run();
  EXPECT_EQ(e.core->stats().kv_blocks_free, 20);
}

// Of a search the first stream alone counts as an answer, and only where the search came to its end.
TEST(PlacesEdges, ASearchLeavesWholeOnceOrNotAtAll) {
  Script script;
  script.end_tokens = {9};
  script.likeliest = [](const std::vector<TokenId>&) {
    return std::vector<TokenLogprob>{{1, -0.5f}, {2, -1.0f}, {4, -3.0f}, {5, -4.0f}};
  };
  for (const bool cancelled : {false, true}) {
    Lines shared, left;
    ScriptedEngine e(edge_places(30), std::make_unique<Watching>(shared, left), script);
    Request request = scripted_request(1000, 6, 4);
    request.beams = request.n = 2;
    e.add(1, request);
    e.step();
    e.step();
    if (cancelled) e.core->cancel(1);
    e.run();
    EXPECT_EQ(e.all.back().finish, cancelled ? FinishReason::cancelled : FinishReason::length);
    EXPECT_EQ(left, cancelled ? (Lines{"1.0", "1.1"}) : (Lines{"1.0 whole", "1.1"}));
  }
}

// Blocks that leave memory or come back for more steps than a live-lock has are no live-lock.
TEST(PlacesEdges, SlowMovesAreNoLivelock) {
  EngineOptions o = edge_places(6);
  o.kv_tier = memory_tier(20);
  ScriptedEngine e(o);
  e.script.tier_state = TierState::busy;
  e.add(1, scripted_request(1000, 7, 3));
  e.step();
  StepPlan away;
  away.preempted = {{1, true}};
  ASSERT_TRUE(e.core->replay(away, e.events).ok());
  const auto alone = [&](const std::string& phase) { return e.streams().starts_with("1 " + phase); };
  ASSERT_TRUE(alone("leaves")) << e.streams();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(e.step(), "");
  EXPECT_TRUE(alone("leaves")) << e.streams();
  EXPECT_EQ(e.core->stats().livelocks, 0);
  e.script.tier_state = TierState::ready;
  for (int i = 0; i < 3 && !alone("loads"); ++i) e.step();
  ASSERT_TRUE(alone("loads")) << e.streams();
  e.script.tier_state = TierState::busy;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(e.step(), "");
  EXPECT_EQ(e.core->stats().livelocks, 0);
  e.script.tier_state = TierState::ready;
  e.run();
  EXPECT_EQ(e.all.back().finish, FinishReason::stop);
}

// A snapshot has 8192 cells; one block more, and each cell is of two.
TEST(PlacesEdges, SnapshotsOfLargePools) {
  for (const auto& [blocks, per_cell] : {std::pair(1, 1), {8191, 1}, {8192, 1}, {8193, 2}, {16384, 2}, {16385, 3}}) {
    ScriptedEngine e(scripted_options(blocks));
    const EngineSnapshot look = e.core->snapshot();
    EXPECT_EQ(look.blocks_per_cell, per_cell) << blocks;
    int64_t cells = 0;
    for (const CellsSnapshot& run : look.cells) cells += run.count;
    EXPECT_EQ(cells, (blocks + per_cell - 1) / per_cell);
  }
}

}  // namespace
}  // namespace millrace
