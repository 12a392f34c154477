// SchedulerPolicy: the order of streams, their share of a step, and the victims of preemption. One file each under
// policies/ and one line in builtin.cc. The planner (planner.h) turns a policy's decisions into a StepPlan within the
// limits: a policy cannot overcommit tokens or blocks, and affects only the timing of a stream's output, never its
// content.
//
// A policy belongs to one engine and is called only on its thread. It may keep state per stream id.
#pragma once

#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "schedule/view.h"

namespace millrace {

// Token limit of a running stream in this step.
struct Share {
  const Sequence* stream = nullptr;
  int64_t tokens = 0;
};

// An event of a stream, reported after the fact.
struct ScheduleEvent {
  enum class Kind { queued, admitted, ran, preempted, left };
  Kind kind = Kind::queued;
  const Sequence* stream = nullptr;
  int64_t tokens = 0;    // ran: in its chunk
  bool sampled = false;  // ran: the step sampled a token for it
  double seconds = 0;    // ran: of the whole step
  bool whole = false;    // left: its answer completed normally
  int64_t kept = 0;      // ran: tokens computed for the first time
  int64_t lost = 0;      // preempted: tokens that must be recomputed
};

class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;

  // Sorts the queue, given in order of arrival, into the order of admission. A stream that does not fit blocks those
  // behind it.
  virtual void rank(std::vector<const Sequence*>& /*queue*/, const ScheduleView& /*view*/) {}

  // Appends the streams of view.running that run in the next step, in the order in which tokens and blocks are handed
  // out. Streams that are left out pause and retain their blocks.
  virtual void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) = 0;

  // Selects the stream of view.running that is preempted for `wanting`, which is either running and needs a block, or
  // is the next waiting stream to be admitted. Null: none; then a running `wanting` is preempted itself and a waiting
  // one waits. For termination, victims must come after `wanting` in a fixed total order.
  virtual const Sequence* victim(const ScheduleView& view, const Sequence& wanting) = 0;

  // For a waiting `wanting`: the policy's estimate of the seconds gained by preempting the victim. A preemption that
  // costs more is not made. By default the order alone decides.
  virtual double gain_seconds(const Sequence& /*victim*/, const Sequence& /*wanting*/) const {
    return std::numeric_limits<double>::infinity();
  }

  // Tokens whose blocks a stream is promised at admission. To store more than these it may have to preempt a victim.
  virtual int64_t promise(const Sequence& stream, const PlannerLimits& /*limits*/) const { return stream.max_total; }

  // A stream of view.running to move out of memory early, so that admissions find room; null: none.
  virtual const Sequence* leave_early(const ScheduleView& /*view*/) { return nullptr; }

  // Rejects a new stream that cannot be served as requested, with the reason. Errors: resource.
  virtual Result<void> accept(const Sequence& /*stream*/, const ScheduleView& /*view*/) { return {}; }

  virtual void observe(const ScheduleEvent& /*event*/) {}
};

using PolicyFactory = Result<std::unique_ptr<SchedulerPolicy>> (*)(const OptionValues& options);
const Registry<PolicyFactory>& policies();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<SchedulerPolicy>> make_policy(std::string_view text);

}  // namespace millrace
