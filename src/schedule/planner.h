// The planner: queue, running streams and a policy in, StepPlan out. It looks at plain data only, so that a plan can be
// compared, printed and replayed, and the same code plans for the real engine and for a simulated one.
//
// A step is planned in two halves, because who is admitted may find part of its prompt in the prefix index:
//   1. places: who comes in from the queue, and who gives way to them
//   2. chunks: how many tokens of each running stream; a stream that lacks a block takes it from the policy's victim
//
// Blocks are counted so that no admitted stream ever fails for lack of them. Every running stream is promised
// reserved_blocks; what it needs beyond that it takes from what nobody is promised, or from a victim, or it gives way
// itself: its tokens stay, and it comes back when there is room.
//
//   total = held by streams + leaving (on their way to a tier) + free or cached
//                                                                 = promised, not yet taken + spare
#pragma once

#include <memory>
#include <vector>

#include "flow/step_plan.h"
#include "schedule/policy.h"

namespace millrace {

class Planner {
 public:
  explicit Planner(std::unique_ptr<SchedulerPolicy> policy) : policy_(std::move(policy)) {}
  SchedulerPolicy& policy() { return *policy_; }

  // Blocks that `stream` is promised if it is admitted now.
  int64_t promised_blocks(const Sequence& stream, const PlannerLimits& limits) const;

  // Fills plan.preempted and plan.admitted.
  void plan_places(const ScheduleView& view, StepPlan& plan);
  // Fills plan.squeezed and plan.chunks; `view` shows the streams after the first half took place.
  void plan_chunks(const ScheduleView& view, StepPlan& plan);

 private:
  struct Account {
    int64_t spare = 0;     // blocks that nobody is promised
    int64_t arriving = 0;  // of streams that are leaving memory, soon spare
    int64_t swap_tokens = 0;
    int64_t streams = 0;   // resident
  };
  Account open_account(const ScheduleView& view);
  bool place(const ScheduleView& view, const Sequence& candidate, Account& account, StepPlan& plan);
  PlannedPreemption send_away(const ScheduleView& view, const Sequence& victim, Account& account);
  bool find_blocks(const ScheduleView& view, const Sequence& stream, int64_t lacking, Account& account, StepPlan& plan);
  void squeeze(const ScheduleView& view, const Sequence& victim, Account& account, StepPlan& plan);
  bool remains(const Sequence& stream) const;
  const Sequence* ask_victim(const ScheduleView& view, const Sequence& wanting);

  std::unique_ptr<SchedulerPolicy> policy_;
  std::vector<const Sequence*> queue_, residents_, saved_;  // residents_: running without those sent away in this plan
  std::vector<const Sequence*> movable_, runnable_;
  std::vector<Share> shares_;
  std::vector<int64_t> spare_taken_;  // by each chunk of the plan
  int64_t tokens_left_ = 0, outputs_left_ = 0;
};

// Blocks that a stream may come to need in all.
inline int64_t blocks_needed(const Sequence& stream, const PlannerLimits& limits) { return limits.blocks_for(stream.max_total); }

}  // namespace millrace
