// The planner trusted a policy that named a stream which the engine cannot take blocks from: one whose blocks were
// being swapped in, or a beam search. The engine refused, the new stream was admitted on blocks that had not been
// freed, and the same plan came up in every step. The policies that ship name no such stream, so no test had one.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/planner.h"
#include "schedule/schedule_test.h"

namespace millrace {
namespace {

// A policy that names arbitrary victims, whatever it was shown.
class Stubborn final : public SchedulerPolicy {
 public:
  void share(const ScheduleView& view, int64_t, std::vector<Share>& out) override {
    for (const Sequence* stream : view.running) out.push_back({stream, stream->remaining()});
  }
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return named; }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override { return stream.size() + 1; }
  const Sequence* leave_early(const ScheduleView&) override { return named; }

  const Sequence* named = nullptr;
};

struct State {
  const char* name;
  StreamPhase phase;
  bool non_preemptible;
  bool can;  // whether the stream can be preempted
};
constexpr State kStates[] = {
    {"runs", StreamPhase::running, false, true},         {"a search", StreamPhase::running, true, false},
    {"comes back", StreamPhase::loading, false, false},  {"a search comes back", StreamPhase::loading, true, false},
    {"leaves", StreamPhase::swapping_out, false, false}, {"left", StreamPhase::swapped, false, false},
    {"waits", StreamPhase::waiting, false, false},       {"looks up", StreamPhase::looking_up, false, false},
};

void expect_only_preemptible_victims(testing::PlannerHarness& desk, const std::string& what) {
  StepPlan plan;
  desk.planner->plan_places(desk.view(), plan);
  const bool any_preempted = !plan.preempted.empty();
  desk.planner->plan_chunks(desk.view(), plan);
  for (const auto* list : {&plan.preempted, &plan.preempted_for_blocks}) {
    for (const PlannedPreemption& one : *list) {
      const auto stream = std::ranges::find(desk.streams, one.request, [](const auto& s) { return s->id; });
      ASSERT_NE(stream, desk.streams.end()) << what;
      EXPECT_TRUE((*stream)->phase == StreamPhase::running && !(*stream)->non_preemptible)
          << what << ": " << plan.to_string();
    }
  }
  // A stream that does not fit is admitted only when another one was preempted.
  EXPECT_TRUE(any_preempted || plan.admitted.empty()) << what << ": " << plan.to_string();
}

TEST(VictimThatCanBePreempted, OnlyPreemptibleStreamsArePreempted) {
  for (const State& state : kStates) {
    for (const int64_t swap_room : {0, 1000}) {
      testing::PlannerHarness desk("fcfs");
      auto policy = std::make_unique<Stubborn>();
      Stubborn& stubborn = *policy;
      desk.planner = std::make_unique<Planner>(std::move(policy));
      Sequence& named = desk.run(1, 32, 1, 32);
      desk.hold(named, 2);
      named.phase = state.phase;
      named.non_preemptible = state.non_preemptible;
      desk.wait(2, 32);
      desk.free_blocks = 0;
      desk.swap_tokens = swap_room;
      stubborn.named = &named;
      expect_only_preemptible_victims(desk, state.name);
    }
  }
}

TEST(VictimThatCanBePreempted, EveryPolicyWithStreamsInEveryState) {
  for (const auto& entry : policies().entries()) {
    for (const State& state : kStates) {
      testing::PlannerHarness desk(entry.info.name);
      Sequence& first = desk.run(1, 32, 0, 32);
      first.request.priority = 1;
      desk.hold(first, 2);
      Sequence& other = desk.run(2, 32, 1, 32);
      desk.hold(other, 2);
      other.phase = state.phase;
      other.non_preemptible = state.non_preemptible;
      desk.wait(3, 32).request.priority = 5;
      desk.free_blocks = 0;
      expect_only_preemptible_victims(desk, entry.info.name + std::string(" beside one that ") + state.name);
    }
  }
}

}  // namespace
}  // namespace millrace
