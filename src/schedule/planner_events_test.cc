// What the planner makes of events: live-locks, and what it passes on.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// The last to arrive comes first.
struct Backwards final : SchedulerPolicy {
  void rank(std::vector<const Sequence*>& queue, const ScheduleView&) override { std::ranges::reverse(queue); }
  void share(const ScheduleView&, int64_t, std::vector<Share>&) override {}
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return nullptr; }
};

TEST(PlannerEvents, LivelockLastsWhileOneOfItsStreamsWaits) {
  Desk desk("fcfs");
  desk.planner = std::make_unique<Planner>(std::make_unique<Backwards>());
  Sequence &first = desk.wait(1, 10, 0, 16), &second = desk.wait(2, 10, 0, 16);
  for (const Sequence* stream : {&first, &second}) desk.planner->observe({ScheduleEvent::Kind::queued, stream});
  EXPECT_EQ(desk.places(), "admit 2 1;");
  for (int i = 0; i < 65; ++i) desk.planner->observe_step(false, false);
  Sequence& third = desk.wait(3, 10, 0, 16);
  desk.planner->observe({ScheduleEvent::Kind::queued, &third});
  EXPECT_EQ(desk.places(), "admit 1 2 3;") << "in order of arrival";
  desk.waiting = {&second, &third};
  EXPECT_EQ(desk.places(), "admit 2 3;");
  desk.waiting = {&third};
  second.phase = StreamPhase::running;
  desk.running = {&second};
  EXPECT_EQ(desk.places(), "admit 3;");
  desk.waiting = {&third, &desk.wait(4, 10, 0, 16)};
  desk.running.clear();
  EXPECT_EQ(desk.places(), "admit 4 3;") << "the policy has its say again";
}

TEST(PlannerEvents, EachLivelockIsCountedOnce) {
  Desk desk("fcfs");
  desk.planner->observe({ScheduleEvent::Kind::queued, &desk.wait(1, 10)});
  for (int i = 0; i < 129; ++i) desk.planner->observe_step(false, false);
  EXPECT_EQ(desk.planner->livelocks(), 1);
  desk.planner->observe_step(false, false);
  EXPECT_EQ(desk.planner->livelocks(), 2);
}

TEST(PlannerEvents, ReachThePolicy) {
  Desk desk("vtc");
  Sequence &first = desk.wait(1, 10), &second = desk.wait(2, 10);
  first.request.tenant = "a", second.request.tenant = "b";
  EXPECT_EQ(desk.places(), "admit 1 2;");
  desk.planner->observe({ScheduleEvent::Kind::ran, &first, 1, true, 0.01});
  EXPECT_EQ(desk.places(), "admit 2 1;");
}

}  // namespace
}  // namespace millrace
