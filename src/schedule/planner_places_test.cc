// The planner's first phase, under any policy: which streams are admitted, and which are preempted for them.
#include <gtest/gtest.h>

#include <functional>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// A policy whose decisions are scripted by the test.
struct PlacePolicy final : SchedulerPolicy {
  std::function<const Sequence*(const ScheduleView&, const Sequence&)> wanted_victim;
  double gain = 1e9;

  void share(const ScheduleView&, int64_t, std::vector<Share>&) override {}
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return wanted_victim ? wanted_victim(view, wanting) : nullptr;
  }
  double gain_seconds(const Sequence&, const Sequence&) const override { return gain; }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override { return stream.size() + 1; }
};

const Sequence* front_of(const ScheduleView& view) { return view.running.empty() ? nullptr : view.running.front(); }
const Sequence* back(const ScheduleView& view) { return view.running.empty() ? nullptr : view.running.back(); }

class Places : public ::testing::Test {
 protected:
  Places() : harness("fcfs") {
    auto policy = std::make_unique<PlacePolicy>();
    scripted = policy.get();
    harness.planner = std::make_unique<Planner>(std::move(policy));
    harness.limits.total_blocks = 64;
    harness.free_blocks = 0;
  }
  // A stream with `blocks` blocks and all tokens but the last stored.
  Sequence& resident(RequestId id, int64_t blocks) {
    return harness.hold(harness.run(id, blocks * 16 - 2, 1, blocks * 16 - 2, blocks * 16), blocks);
  }

  PlannerHarness harness;
  PlacePolicy* scripted = nullptr;
};

TEST_F(Places, EveryKindOfReservation) {
  Sequence& stream = harness.wait(1, 16, 4, 100);
  harness.limits.total_blocks = 20;
  EXPECT_EQ(harness.planner->promised_blocks(stream, harness.limits), 2);
  stream.tokens.resize(32);
  EXPECT_EQ(harness.planner->promised_blocks(stream, harness.limits), 3) << "one token more than it has";
  stream.width = 2;
  EXPECT_EQ(harness.planner->promised_blocks(stream, harness.limits), 3);
  stream.non_preemptible = true;
  EXPECT_EQ(harness.planner->promised_blocks(stream, harness.limits), 14) << "the maximum for all beams";
  stream.kv.left_out = 32;
  EXPECT_EQ(harness.planner->promised_blocks(stream, harness.limits), 10);
  stream.width = 3;
  EXPECT_EQ(harness.planner->promised_blocks(stream, harness.limits), 15);
  stream.width = 5;
  EXPECT_EQ(harness.planner->promised_blocks(stream, harness.limits), 20) << "or all blocks";
}

TEST_F(Places, AnswerLongerThanPredictedReservesItsNextToken) {
  PlannerHarness orca("orca:room=oracle");
  Sequence& stream = orca.wait(1, 10, 6, 64);
  stream.request.known_tokens = 6;
  EXPECT_EQ(orca.planner->promised_blocks(stream, orca.limits), 2);
}

TEST_F(Places, ReservesHeadroomForGrowthIfStreamsRun) {
  harness.limits.total_blocks = 300;
  harness.wait(2, 10, 0, 64);
  harness.free_blocks = 1;
  EXPECT_EQ(harness.places(), "admit 2;");
  resident(1, 1);
  EXPECT_EQ(harness.places(), "");
  harness.free_blocks = 3;
  EXPECT_EQ(harness.places(), "");
  harness.free_blocks = 4;
  EXPECT_EQ(harness.places(), "admit 2;");
  harness.free_blocks = 1;
  harness.streams[0]->max_total = 16;  // it will not grow
  EXPECT_EQ(harness.places(), "admit 2;");
}

TEST_F(Places, PolicySeesOnlyPreemptibleStreams) {
  resident(1, 1), resident(2, 1).non_preemptible = true, resident(3, 1);
  harness.streams[2]->progress.safe_until = 15;  // one more token until it may be preempted
  harness.wait(4, 10, 0, 16);
  scripted->wanted_victim = [](const ScheduleView& view, const Sequence&) { return back(view); };
  EXPECT_EQ(harness.places(), "preempt 1; admit 4;");
  scripted->wanted_victim = [this](const ScheduleView&, const Sequence&) { return harness.running[1]; };
  EXPECT_EQ(harness.places(), "");
}

TEST_F(Places, NewStreamPreemptsOnlyVictimsThatRecoveredTheirLoss) {
  Sequence& first = resident(1, 1);
  Sequence& newcomer = harness.wait(2, 10, 0, 16);
  scripted->wanted_victim = [](const ScheduleView& view, const Sequence&) { return front_of(view); };
  for (auto [lost, phase, expected] : {std::tuple{7, StreamPhase::waiting, "preempt 1; admit 2;"},
                                       {8, StreamPhase::waiting, ""},
                                       {7, StreamPhase::swapped, "preempt 1; admit 2;"},
                                       {8, StreamPhase::swapped, ""}}) {
    first.progress.lost = lost;
    newcomer.phase = phase;
    EXPECT_EQ(harness.places(), expected) << lost;
  }
}

TEST_F(Places, WaitsForBlocksBeingSwappedOut) {
  resident(1, 2);
  harness.wait(2, 20, 0, 32), harness.wait(3, 10, 0, 16);  // 2 blocks and 1
  scripted->wanted_victim = [](const ScheduleView& view, const Sequence&) { return front_of(view); };
  harness.free_blocks = 1;
  harness.leaving_blocks = 1;
  EXPECT_EQ(harness.places(), "") << "the leaving blocks suffice, and 3 does not overtake";
  harness.leaving_blocks = 0;
  EXPECT_EQ(harness.places(), "preempt 1; admit 2 3;");
  harness.leaving_blocks = 1;
  harness.limits.max_streams = 1;
  EXPECT_EQ(harness.places(), "preempt 1; admit 2;") << "otherwise the batch is full";
}

// Recomputing 14 tokens takes 14 s.
struct PlaceCost final : CostModel {
  double swap = 0;
  double step_seconds(const StepShape& shape) const override { return static_cast<double>(shape.keys); }
  double swap_seconds(int64_t) const override { return swap; }
};

TEST_F(Places, PreemptionCostsNoMoreThanItGains) {
  PlaceCost keys;
  harness.cost = &keys;
  resident(1, 1);
  harness.wait(2, 10, 0, 16);
  scripted->wanted_victim = [](const ScheduleView& view, const Sequence&) { return front_of(view); };
  struct Case {
    double swap, gain;
    int64_t room;
    const char* places;
  };
  for (const Case& one : {Case{100, 14, 0, "preempt 1; admit 2;"},
                          {100, 13.5, 0, ""},
                          {1, 13.5, 13, ""},
                          {1, 14, 13, "preempt 1; admit 2;"},
                          {1, 13.5, 14, "preempt 1~;"},
                          {1, 2, 14, "preempt 1~;"},
                          {1, 1.5, 14, ""},
                          {6.5, 13, 14, "preempt 1~;"},
                          {7, 13, 14, ""},
                          {7, 14, 14, "preempt 1; admit 2;"}}) {
    keys.swap = one.swap, scripted->gain = one.gain, harness.swap_tokens = one.room;
    EXPECT_EQ(harness.places(), one.places) << one.swap << " " << one.gain << " " << one.room;
  }
}

TEST_F(Places, OneStoredTokenHasACostAndNoneHasNot) {
  PlaceCost keys;
  keys.swap = 100;
  harness.cost = &keys;
  Sequence& first = harness.hold(harness.run(1, 10, 0, 1, 16), 1);
  harness.wait(2, 10, 0, 16);
  scripted->wanted_victim = [](const ScheduleView& view, const Sequence&) { return front_of(view); };
  scripted->gain = 0.5;
  EXPECT_EQ(harness.places(), "");
  first.computed = 0;
  EXPECT_EQ(harness.places(), "preempt 1; admit 2;");
}

TEST(PlannerLimitsTest, LongestKeptIsTheContextOrWhatThePoolHolds) {
  PlannerLimits limits;
  limits.context = 100, limits.total_blocks = 7;
  EXPECT_EQ(limits.longest_kept(), 100);
  limits.total_blocks = 6;
  EXPECT_EQ(limits.longest_kept(), 96);
  limits.most_held = 90;
  EXPECT_EQ(limits.longest_kept(), 100);
}

}  // namespace
}  // namespace millrace
