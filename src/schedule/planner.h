// The planner builds a StepPlan from the queue, the running streams and a policy. Its inputs and plans are plain data,
// so that plans can be compared, printed and replayed, and the same code plans for the engine and for the simulator.
//
// A step is planned in two halves, because an admitted stream may find part of its prompt in the prefix index:
//   1. places: which queued streams are admitted, and which running streams are preempted for them
//   2. chunks: how many tokens of each running stream run; a stream that needs a block preempts the policy's victim.
//      Drafted tokens then fill the remaining tokens, outputs and spare blocks of the step
//
// Block accounting guarantees that no admitted stream fails for lack of blocks. Every running stream is promised
// reserved_blocks. For further blocks, it takes unpromised blocks, preempts a victim, or is preempted itself; it then
// retains its tokens and is admitted again when there is room. A preempted stream is protected for a while, under every
// policy (preemption.h). If steps still make no progress (livelock.h), all open streams run to their end in order of
// arrival; then the policy takes over again.
//
//   total blocks = held by streams + leaving (being moved to a tier) + free or cached
//                                                                       = promised, not yet taken + spare
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flow/step_plan.h"
#include "schedule/livelock.h"
#include "schedule/policy.h"

namespace millrace {

class Planner {
 public:
  explicit Planner(std::unique_ptr<SchedulerPolicy> policy)
      : policy_(std::move(policy)), to_the_end_(make_run_to_completion()) {}
  SchedulerPolicy& policy() { return *policy_; }

  // Reports a stream's event to the policy and the watch.
  void observe(const ScheduleEvent& event);
  // Reports the end of a step. `ran`: a stream ran. `moves`: blocks are in transit.
  void observe_step(bool ran, bool moves);
  int64_t livelocks() const { return livelocks_; }
  const std::string& last_livelock() const { return last_livelock_; }  // description for logs

  // Returns the number of blocks that would be promised to `stream` if it were admitted now.
  int64_t promised_blocks(const Sequence& stream, const PlannerLimits& limits) const;

  // Fills plan.preempted and plan.admitted.
  void plan_places(const ScheduleView& view, StepPlan& plan);
  // Fills plan.preempted_for_blocks and plan.chunks; `view` reflects the first half of the plan.
  void plan_chunks(const ScheduleView& view, StepPlan& plan);

 private:
  struct Account {
    int64_t spare = 0;     // blocks that no stream is promised
    int64_t arriving = 0;  // blocks of streams that are being moved out; spare when the move is complete
    int64_t swap_tokens = 0;
    int64_t streams = 0;  // resident
  };
  Account open_account(const ScheduleView& view);
  bool place(const ScheduleView& view, const Sequence& candidate, Account& account, StepPlan& plan);
  PlannedPreemption send_away(const ScheduleView& view, const Sequence& victim, Account& account);
  bool find_blocks(const ScheduleView& view, const Sequence& stream, int64_t lacking, Account& account, StepPlan& plan);
  void squeeze(const ScheduleView& view, const Sequence& victim, Account& account, StepPlan& plan);
  void add_drafts(const ScheduleView& view, Account& account, StepPlan& plan);
  bool remains(const Sequence& stream) const;
  bool pays(const ScheduleView& view, const Sequence& victim, const Sequence& candidate, const Account& account) const;
  const Sequence* ask_victim(const ScheduleView& view, const Sequence& wanting);
  SchedulerPolicy& acting() const { return until_arrival_ > 0 ? *to_the_end_ : *policy_; }
  void end_livelock(const ScheduleView& view);

  std::unique_ptr<SchedulerPolicy> policy_, to_the_end_;
  LivelockWatch watch_;
  int64_t livelocks_ = 0;
  int64_t last_arrival_ = 0;   // latest arrival so far
  int64_t until_arrival_ = 0;  // after a live-lock: streams up to this arrival run to their end first; 0: no live-lock
  std::string last_livelock_;
  std::vector<const Sequence*> queue_, residents_, saved_;  // residents_: running streams not preempted in this plan
  std::vector<const Sequence*> movable_, runnable_;
  std::vector<Share> shares_;
  std::vector<int64_t> spare_taken_;  // by each chunk of the plan
  int64_t tokens_left_ = 0, outputs_left_ = 0;
};

// Returns the number of blocks for a stream's first `tokens` tokens. Tokens that are left out of its attention,
// evicted, or outside of all windows have no blocks.
inline int64_t blocks_of(const Sequence& stream, int64_t tokens, const PlannerLimits& limits) {
  if (stream.kv.by_layer) {
    int64_t blocks = 0;
    for (int64_t layer = 0; layer < limits.tables; ++layer)
      blocks += limits.blocks_for(stream.layer_demand(layer, tokens));
    return blocks;
  }
  const int64_t demand = stream.kv_demand(tokens), most = limits.blocks_for(limits.held(demand));
  const int64_t left = limits.blocks_for(demand) - stream.kv.dead_blocks;
  return most < left ? most : left;
}
// Returns the maximum number of blocks that the stream may need.
inline int64_t blocks_needed(const Sequence& stream, const PlannerLimits& limits) {
  return blocks_of(stream, stream.max_total, limits);
}

}  // namespace millrace
