// The planner's handling of events: live-lock detection, and events passed to the policy.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// The last to arrive is first.
struct Backwards final : SchedulerPolicy {
  void rank(std::vector<const Sequence*>& queue, const ScheduleView&) override { std::ranges::reverse(queue); }
  void share(const ScheduleView&, int64_t, std::vector<Share>&) override {}
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return nullptr; }
};

TEST(PlannerEvents, LivelockLastsWhileOneOfItsStreamsWaits) {
  PlannerHarness harness("fcfs");
  harness.planner = std::make_unique<Planner>(std::make_unique<Backwards>());
  Sequence &first = harness.wait(1, 10, 0, 16), &second = harness.wait(2, 10, 0, 16);
  for (const Sequence* stream : {&first, &second}) harness.planner->observe({ScheduleEvent::Kind::queued, stream});
  EXPECT_EQ(harness.places(), "admit 2 1;");
  for (int i = 0; i < 65; ++i) harness.planner->observe_step(false, false);
  Sequence& third = harness.wait(3, 10, 0, 16);
  harness.planner->observe({ScheduleEvent::Kind::queued, &third});
  EXPECT_EQ(harness.places(), "admit 1 2 3;") << "in order of arrival";
  harness.waiting = {&second, &third};
  EXPECT_EQ(harness.places(), "admit 2 3;");
  harness.waiting = {&third};
  second.phase = StreamPhase::running;
  harness.running = {&second};
  EXPECT_EQ(harness.places(), "admit 3;");
  harness.waiting = {&third, &harness.wait(4, 10, 0, 16)};
  harness.running.clear();
  EXPECT_EQ(harness.places(), "admit 4 3;") << "the policy decides again";
}

TEST(PlannerEvents, EachLivelockIsCountedOnce) {
  PlannerHarness harness("fcfs");
  harness.planner->observe({ScheduleEvent::Kind::queued, &harness.wait(1, 10)});
  for (int i = 0; i < 129; ++i) harness.planner->observe_step(false, false);
  EXPECT_EQ(harness.planner->livelocks(), 1);
  harness.planner->observe_step(false, false);
  EXPECT_EQ(harness.planner->livelocks(), 2);
}

TEST(PlannerEvents, ReachThePolicy) {
  PlannerHarness harness("vtc");
  Sequence &first = harness.wait(1, 10), &second = harness.wait(2, 10);
  first.request.tenant = "a", second.request.tenant = "b";
  EXPECT_EQ(harness.places(), "admit 1 2;");
  harness.planner->observe({ScheduleEvent::Kind::ran, &first, 1, true, 0.01});
  EXPECT_EQ(harness.places(), "admit 2 1;");
}

}  // namespace
}  // namespace millrace
