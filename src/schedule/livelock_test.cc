// The live-lock watch, and how the planner resolves a live-lock under policies that make no progress.
#include "schedule/livelock.h"

#include <gtest/gtest.h>

#include "schedule/preemption.h"
#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

ScheduleEvent ran(const Sequence& s, int64_t kept) {
  return {.kind = ScheduleEvent::Kind::ran, .stream = &s, .tokens = kept + 1, .kept = kept};
}
ScheduleEvent preempted(const Sequence& s, int64_t lost) {
  return {.kind = ScheduleEvent::Kind::preempted, .stream = &s, .lost = lost};
}

TEST(LivelockWatch, DetectsPreemptionsWithoutANewToken) {
  LivelockWatch watch;
  Sequence s;
  for (int i = 0; i < 100; ++i) watch.observe({ScheduleEvent::Kind::queued, &s});
  for (int i = 0; i < 400; ++i) watch.observe(preempted(s, 1));
  EXPECT_FALSE(watch.locked());
  watch.observe(preempted(s, 1));
  EXPECT_TRUE(watch.locked());
  EXPECT_EQ(watch.why(), "100 streams were preempted 401 times without a new token");
  watch.observe(ran(s, 0));  // recomputing the same token is no progress
  EXPECT_TRUE(watch.locked());
  watch.observe(ran(s, 1));
  EXPECT_FALSE(watch.locked());
  for (int i = 0; i < 401; ++i) watch.observe(preempted(s, 1));
  watch.begin_anew();
  EXPECT_FALSE(watch.locked());
}

TEST(LivelockWatch, DetectsMoreLostThanComputedTokens) {
  LivelockWatch watch;
  Sequence s;
  watch.observe({ScheduleEvent::Kind::queued, &s});
  watch.observe(ran(s, 200'000));
  for (int i = 0; i < 1600; ++i) {
    watch.observe(preempted(s, 1000));
    watch.observe(ran(s, 1));
    ASSERT_FALSE(watch.locked()) << i;
  }
  for (int i = 0; i < 100; ++i) watch.observe(preempted(s, 1000)), watch.observe(ran(s, 1));
  EXPECT_TRUE(watch.locked());
  for (int i = 0; i < 11; ++i) watch.observe(ran(s, 1'000'000));  // older counts have less weight
  EXPECT_FALSE(watch.locked());
}

TEST(LivelockWatch, DetectsStepsWithoutAChunkUnlessBlocksAreMoving) {
  LivelockWatch watch;
  Sequence s;
  for (int i = 0; i < 1000; ++i) watch.step(false, false);
  EXPECT_FALSE(watch.locked());  // no open streams
  watch.observe({ScheduleEvent::Kind::queued, &s});
  for (int i = 0; i < 1000; ++i) watch.step(false, true);
  EXPECT_FALSE(watch.locked());
  for (int i = 0; i < 64; ++i) watch.step(false, false);
  EXPECT_FALSE(watch.locked());
  watch.step(false, false);
  EXPECT_TRUE(watch.locked());
  watch.step(true, false);
  EXPECT_FALSE(watch.locked());
}

// Admits no stream and schedules no token.
class Idle final : public SchedulerPolicy {
 public:
  void share(const ScheduleView&, int64_t, std::vector<Share>&) override {}
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return nullptr; }
};

TEST(Planner, LivelockIsResolvedInArrivalOrderThenThePolicyDecidesAgain) {
  PlannerHarness harness("fcfs");
  harness.planner = std::make_unique<Planner>(std::make_unique<Idle>());
  Sequence& s = harness.run(1, 10, 0, 0);
  harness.planner->observe({ScheduleEvent::Kind::queued, &s});
  EXPECT_EQ(harness.chunks(), "");
  for (int i = 0; i < 65; ++i) harness.planner->observe_step(false, false);
  EXPECT_EQ(harness.planner->livelocks(), 1);
  EXPECT_EQ(harness.planner->last_livelock(), "nothing ran in 65 steps though 1 streams are open");
  EXPECT_EQ(harness.places(), "");
  EXPECT_EQ(harness.chunks(), "1:[0+10]*");
  harness.planner->observe({ScheduleEvent::Kind::left, &s});
  harness.clear();
  Sequence& later = harness.run(2, 10, 0, 0);
  harness.planner->observe({ScheduleEvent::Kind::queued, &later});
  EXPECT_EQ(harness.places(), "");
  EXPECT_EQ(harness.chunks(), "");
}

TEST(Planner, StreamsThatLostMoreThanTheyHaveAreNotPreempted) {
  PlannerHarness harness("fcfs:reserve=prompt");
  Sequence& first = harness.hold(harness.run(1, 10, 7, 16, 64), 1);
  Sequence& last = harness.run(2, 60, 0, 40, 200);
  spare(last, true);
  EXPECT_EQ(last.progress.lost, 40);
  EXPECT_EQ(last.progress.safe_until, 41);
  EXPECT_FALSE(may_be_victim(last, false));  // it has not recomputed its lost tokens yet
  last.computed = 41;
  EXPECT_TRUE(may_be_victim(last, false));
  EXPECT_FALSE(may_be_victim(last, true));  // not for a new stream until the loss is recovered
  last.computed = 80;
  EXPECT_TRUE(may_be_victim(last, true));
  last.progress.lost = 198;
  last.computed = 0;
  EXPECT_EQ(harness.planner->promised_blocks(last, harness.limits), 7);  // until it may be preempted again
  last.max_total = 70;
  EXPECT_EQ(harness.planner->promised_blocks(last, harness.limits), 5);  // or until its end
  last.max_total = 200;
  last.tokens.resize(98);
  last.computed = 97;
  harness.hold(last, 7);
  harness.free_blocks = 0;
  EXPECT_EQ(harness.chunks(), "squeeze 1; 2:[97+1]*");  // 2 may not be preempted, so 1 preempts itself
  last.tokens.resize(99);
  EXPECT_EQ(harness.chunks(), "squeeze 2; 1:[16+1]*");
  spare(last, false);  // swapped out: one token of progress is enough
  EXPECT_EQ(last.progress.lost, 198);
  EXPECT_FALSE(may_be_victim(last, false));
  last.computed = 98;
  EXPECT_TRUE(may_be_victim(last, false));
  EXPECT_TRUE(may_be_victim(first, true));
}

// Lets every new stream preempt any running one, with a fixed gain.
class Greedy final : public SchedulerPolicy {
 public:
  explicit Greedy(double gain) : gain_(gain) {}
  void share(const ScheduleView&, int64_t, std::vector<Share>&) override {}
  const Sequence* victim(const ScheduleView& view, const Sequence&) override {
    return view.running.empty() ? nullptr : view.running.front();
  }
  double gain_seconds(const Sequence&, const Sequence&) const override { return gain_; }

 private:
  double gain_;
};

TEST(Planner, PreemptionMustGainMoreThanItCosts) {
  FixedCost cost;  // 0.01 s per step plus 0.001 s per token: 0.11 s for 100 tokens; a swap takes 1 s one way
  for (const double gain : {0.1, 0.12}) {
    PlannerHarness harness("fcfs");
    harness.planner = std::make_unique<Planner>(std::make_unique<Greedy>(gain));
    harness.hold(harness.run(1, 100, 1, 100, 101), 7);
    harness.wait(2, 10, 0, 20);
    harness.free_blocks = 0;
    harness.limits.total_blocks = 64;
    harness.cost = &cost;
    harness.limits.max_streams = 1;
    EXPECT_EQ(harness.places().starts_with("preempt 1"), gain > 0.11) << gain;
  }
}

}  // namespace
}  // namespace millrace
