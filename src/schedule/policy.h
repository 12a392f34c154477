// SchedulerPolicy: chooses the order of streams, their share of a step, and the victims of preemption. Each policy is
// one file under policies/ and one line in builtin.cc. The planner (planner.h) builds a StepPlan from a policy's
// decisions and enforces the limits, so a policy cannot overcommit tokens or blocks. A policy affects only the timing
// of a stream's output, never its content.
//
// A policy belongs to one engine and is called only on the engine's thread. It may keep state per stream id.
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
  int64_t tokens = 0;    // ran: tokens in the stream's chunk
  bool sampled = false;  // ran: the step sampled a token of the stream
  double seconds = 0;    // ran: duration of the whole step
  bool whole = false;    // left: the answer completed normally
  int64_t kept = 0;      // ran: tokens computed for the first time
  int64_t lost = 0;      // preempted: tokens that must be recomputed
};

class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;

  // Sorts `queue` from the order of arrival into the order of admission. A stream that does not fit blocks all streams
  // after it. Streams that are removed from `queue` wait for a later step.
  virtual void rank(std::vector<const Sequence*>& /*queue*/, const ScheduleView& /*view*/) {}

  // Appends to `out` the streams of view.running that run in the next step, in the order in which they receive tokens
  // and blocks. Other streams pause and retain their blocks.
  virtual void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) = 0;

  // Selects the stream of view.running to preempt for `wanting`. `wanting` is a running stream that needs a block, or
  // the next waiting stream to be admitted. Null: no victim; a running `wanting` is then preempted itself, and a
  // waiting one waits. For termination, victims must come after `wanting` in a fixed total order.
  virtual const Sequence* victim(const ScheduleView& view, const Sequence& wanting) = 0;

  // Returns an estimate of the seconds gained by preempting `victim` for a waiting `wanting`. The planner does not make
  // a preemption that costs more. By default the gain is infinite, so costs do not matter.
  virtual double gain_seconds(const Sequence& /*victim*/, const Sequence& /*wanting*/) const {
    return std::numeric_limits<double>::infinity();
  }

  // Returns the number of tokens whose blocks are promised to a stream at admission. To store more tokens, the stream
  // may have to preempt a victim.
  virtual int64_t promise(const Sequence& stream, const PlannerLimits& /*limits*/) const { return stream.max_total; }

  // Returns a stream of view.running to swap out early, which frees memory for admissions; null: none.
  virtual const Sequence* leave_early(const ScheduleView& /*view*/) { return nullptr; }

  // Rejects a new stream that cannot be served as requested. Errors: resource, with the reason.
  virtual Result<void> accept(const Sequence& /*stream*/, const ScheduleView& /*view*/) { return {}; }

  virtual void observe(const ScheduleEvent& /*event*/) {}
};

using PolicyFactory = Result<std::unique_ptr<SchedulerPolicy>> (*)(const OptionValues& options);
const Registry<PolicyFactory>& policies();

// `text`: NAME[:key=value,...]. Errors: user (unknown name or option).
Result<std::unique_ptr<SchedulerPolicy>> make_policy(std::string_view text);

}  // namespace millrace
