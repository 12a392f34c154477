// Early swap-outs, before memory runs out: which streams the policy may choose, and the view it gets.
#include <gtest/gtest.h>

#include <functional>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// A policy whose decisions are scripted by the test.
struct EarlyPolicy final : SchedulerPolicy {
  std::function<const Sequence*(const ScheduleView&)> early;

  void share(const ScheduleView&, int64_t, std::vector<Share>&) override {}
  const Sequence* victim(const ScheduleView& view, const Sequence&) override {
    return view.running.empty() ? nullptr : view.running.front();
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override { return stream.size() + 1; }
  const Sequence* leave_early(const ScheduleView& view) override { return early ? early(view) : nullptr; }
};

const Sequence* front(const ScheduleView& view) { return view.running.empty() ? nullptr : view.running.front(); }

class EarlySwapOuts : public ::testing::Test {
 protected:
  EarlySwapOuts() : harness("fcfs") {
    auto policy = std::make_unique<EarlyPolicy>();
    scripted = policy.get();
    harness.planner = std::make_unique<Planner>(std::move(policy));
    harness.limits.total_blocks = 64;
    harness.free_blocks = 0;
  }
  // A stream with one block and all tokens but the last stored.
  Sequence& resident(RequestId id) { return harness.hold(harness.run(id, 14, 1, 14, 16), 1); }

  PlannerHarness harness;
  EarlyPolicy* scripted = nullptr;
};

TEST_F(EarlySwapOuts, UselessPreemptionsAreUndone) {
  resident(1), resident(2);
  harness.wait(3, 100, 0, 110);
  int64_t free_blocks_seen = -1;
  scripted->early = [&free_blocks_seen](const ScheduleView& view) {
    free_blocks_seen = view.free_blocks;
    return front(view);
  };
  harness.swap_tokens = 100;
  harness.free_blocks = 1;
  EXPECT_EQ(harness.places(), "preempt 1~;") << "1 is swapped out early, not to make room for 3";
  EXPECT_EQ(free_blocks_seen, 1);
}

TEST_F(EarlySwapOuts, OnlyPreemptibleStreamsAreSwappedOutEarly) {
  resident(1).non_preemptible = true, resident(2), resident(3);
  scripted->early = front;
  harness.swap_tokens = 14;
  EXPECT_EQ(harness.places(), "preempt 2~;") << "the tier has exactly enough space";
  harness.swap_tokens = 13;
  EXPECT_EQ(harness.places(), "");
  harness.swap_tokens = 100;
  scripted->early = [this](const ScheduleView&) { return harness.running[0]; };
  EXPECT_EQ(harness.places(), "") << "1 may not be preempted";
  scripted->early = nullptr;
  EXPECT_EQ(harness.places(), "");
}

TEST_F(EarlySwapOuts, NoEarlySwapOutWithoutTierSpace) {
  Sequence& first = harness.hold(harness.run(1, 10, 0, 0, 16), 1);
  scripted->early = front;
  EXPECT_EQ(harness.places(), "") << "even a stream with nothing stored";
  harness.swap_tokens = 1;
  first.computed = 1;
  EXPECT_EQ(harness.places(), "preempt 1~;");
}

TEST_F(EarlySwapOuts, PolicySeesSpareAndLeavingBlocks) {
  resident(1).kv.reserved_blocks = 3;  // two of the free blocks are reserved for it
  harness.wait(2, 10, 0, 16);
  int64_t free_blocks_seen = -1;
  scripted->early = [&free_blocks_seen](const ScheduleView& view) {
    free_blocks_seen = view.free_blocks;
    return nullptr;
  };
  harness.swap_tokens = 1;
  harness.free_blocks = 10;
  harness.leaving_blocks = 5;
  EXPECT_EQ(harness.places(), "admit 2;");
  EXPECT_EQ(free_blocks_seen, 10 - 2 - 1 + 5);
}

}  // namespace
}  // namespace millrace
