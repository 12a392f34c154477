// Streams that leave memory ahead of need: which of them the policy may name, and what it is told.
#include <gtest/gtest.h>

#include <functional>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// A policy that does what the test says.
struct Told final : SchedulerPolicy {
  std::function<const Sequence*(const ScheduleView&)> early;

  void share(const ScheduleView&, int64_t, std::vector<Share>&) override {}
  const Sequence* victim(const ScheduleView& view, const Sequence&) override {
    return view.running.empty() ? nullptr : view.running.front();
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override { return stream.size() + 1; }
  const Sequence* leave_early(const ScheduleView& view) override { return early ? early(view) : nullptr; }
};

const Sequence* front(const ScheduleView& view) { return view.running.empty() ? nullptr : view.running.front(); }

class EarlyLeavers : public ::testing::Test {
 protected:
  EarlyLeavers() : desk("fcfs") {
    auto policy = std::make_unique<Told>();
    told = policy.get();
    desk.planner = std::make_unique<Planner>(std::move(policy));
    desk.limits.total_blocks = 64;
    desk.free_blocks = 0;
  }
  // Holds a block, with all its tokens but the last stored.
  Sequence& resident(RequestId id) { return desk.hold(desk.run(id, 14, 1, 14, 16), 1); }

  Desk desk;
  Told* told = nullptr;
};

TEST_F(EarlyLeavers, UselessPreemptionsAreUndone) {
  resident(1), resident(2);
  desk.wait(3, 100, 0, 110);
  int64_t seen = -1;
  told->early = [&seen](const ScheduleView& view) {
    seen = view.free_blocks;
    return front(view);
  };
  desk.swap_tokens = 100;
  desk.free_blocks = 1;
  EXPECT_EQ(desk.places(), "preempt 1~;") << "that one leaves early; it did not make room for 3";
  EXPECT_EQ(seen, 1);
}

TEST_F(EarlyLeavers, OnlyPreemptibleStreamsAreSwappedOutEarly) {
  resident(1).non_preemptible = true, resident(2), resident(3);
  told->early = front;
  desk.swap_tokens = 14;
  EXPECT_EQ(desk.places(), "preempt 2~;") << "the tier has just the room";
  desk.swap_tokens = 13;
  EXPECT_EQ(desk.places(), "");
  desk.swap_tokens = 100;
  told->early = [this](const ScheduleView&) { return desk.running[0]; };
  EXPECT_EQ(desk.places(), "") << "1 stays";
  told->early = nullptr;
  EXPECT_EQ(desk.places(), "");
}

TEST_F(EarlyLeavers, NoEarlySwapOutWithoutTierSpace) {
  Sequence& first = desk.hold(desk.run(1, 10, 0, 0, 16), 1);
  told->early = front;
  EXPECT_EQ(desk.places(), "") << "though it has nothing to store";
  desk.swap_tokens = 1;
  first.computed = 1;
  EXPECT_EQ(desk.places(), "preempt 1~;");
}

TEST_F(EarlyLeavers, PolicySeesSpareAndLeavingBlocks) {
  resident(1).kv.reserved_blocks = 3;  // two of the free blocks are its own
  desk.wait(2, 10, 0, 16);
  int64_t seen = -1;
  told->early = [&seen](const ScheduleView& view) {
    seen = view.free_blocks;
    return nullptr;
  };
  desk.swap_tokens = 1;
  desk.free_blocks = 10;
  desk.leaving_blocks = 5;
  EXPECT_EQ(desk.places(), "admit 2;");
  EXPECT_EQ(seen, 10 - 2 - 1 + 5);
}

}  // namespace
}  // namespace millrace
