// The live-lock watch and how the planner ends a live-lock, under policies with which no stream advances.
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
  watch.observe(ran(s, 0));  // the same once more is nothing new
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
  for (int i = 0; i < 11; ++i) watch.observe(ran(s, 1'000'000));  // long ago counts less
  EXPECT_FALSE(watch.locked());
}

TEST(LivelockWatch, DetectsStepsWithoutAChunkUnlessBlocksAreMoving) {
  LivelockWatch watch;
  Sequence s;
  for (int i = 0; i < 1000; ++i) watch.step(false, false);
  EXPECT_FALSE(watch.locked());  // no stream is open
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

// Gives no stream a place or a token.
class Idle final : public SchedulerPolicy {
 public:
  void share(const ScheduleView&, int64_t, std::vector<Share>&) override {}
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return nullptr; }
};

TEST(Planner, LivelockIsResolvedInArrivalOrderThenThePolicyDecidesAgain) {
  Desk desk("fcfs");
  desk.planner = std::make_unique<Planner>(std::make_unique<Idle>());
  Sequence& s = desk.run(1, 10, 0, 0);
  desk.planner->observe({ScheduleEvent::Kind::queued, &s});
  EXPECT_EQ(desk.chunks(), "");
  for (int i = 0; i < 65; ++i) desk.planner->observe_step(false, false);
  EXPECT_EQ(desk.planner->livelocks(), 1);
  EXPECT_EQ(desk.planner->last_livelock(), "nothing ran in 65 steps though 1 streams are open");
  EXPECT_EQ(desk.places(), "");
  EXPECT_EQ(desk.chunks(), "1:[0+10]*");
  desk.planner->observe({ScheduleEvent::Kind::left, &s});
  desk.clear();
  Sequence& later = desk.run(2, 10, 0, 0);
  desk.planner->observe({ScheduleEvent::Kind::queued, &later});
  EXPECT_EQ(desk.places(), "");
  EXPECT_EQ(desk.chunks(), "");
}

TEST(Planner, StreamsThatLostMoreThanTheyHaveAreNotPreempted) {
  Desk desk("fcfs:reserve=prompt");
  Sequence& first = desk.hold(desk.run(1, 10, 7, 16, 64), 1);
  Sequence& last = desk.run(2, 60, 0, 40, 200);
  spare(last, true);
  EXPECT_EQ(last.progress.lost, 40);
  EXPECT_EQ(last.progress.safe_until, 41);
  EXPECT_FALSE(may_be_victim(last, false));  // it would come back for nothing
  last.computed = 41;
  EXPECT_TRUE(may_be_victim(last, false));
  EXPECT_FALSE(may_be_victim(last, true));  // not for a newcomer: that must pay
  last.computed = 80;
  EXPECT_TRUE(may_be_victim(last, true));
  last.progress.lost = 198;
  last.computed = 0;
  EXPECT_EQ(desk.planner->promised_blocks(last, desk.limits), 7);  // up to where it is no longer spared
  last.max_total = 70;
  EXPECT_EQ(desk.planner->promised_blocks(last, desk.limits), 5);  // or to its end
  last.max_total = 200;
  last.tokens.resize(98);
  last.computed = 97;
  desk.hold(last, 7);
  desk.free_blocks = 0;
  EXPECT_EQ(desk.chunks(), "squeeze 1; 2:[97+1]*");  // the one behind is spared: who lacks the block goes itself
  last.tokens.resize(99);
  EXPECT_EQ(desk.chunks(), "squeeze 2; 1:[16+1]*");
  spare(last, false);  // to a tier: one token is enough
  EXPECT_EQ(last.progress.lost, 198);
  EXPECT_FALSE(may_be_victim(last, false));
  last.computed = 98;
  EXPECT_TRUE(may_be_victim(last, false));
  EXPECT_TRUE(may_be_victim(first, true));
}

// Lets every new stream preempt any running one, for the gain that it states.
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
  FixedCost cost;  // 0.01 s a step and 0.001 s a token: 0.11 s for 100 tokens; a swap 1 s one way
  for (const double gain : {0.1, 0.12}) {
    Desk desk("fcfs");
    desk.planner = std::make_unique<Planner>(std::make_unique<Greedy>(gain));
    desk.hold(desk.run(1, 100, 1, 100, 101), 7);
    desk.wait(2, 10, 0, 20);
    desk.free_blocks = 0;
    desk.limits.total_blocks = 64;
    desk.cost = &cost;
    desk.limits.max_streams = 1;
    EXPECT_EQ(desk.places().starts_with("preempt 1"), gain > 0.11) << gain;
  }
}

}  // namespace
}  // namespace millrace
