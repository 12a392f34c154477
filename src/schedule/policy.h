// SchedulerPolicy: who comes first, who gets how much of a step, and who gives way. One file each under policies/ and
// one line in builtin.cc. The planner (planner.h) turns a policy's wishes into a StepPlan that fits the machine: a
// policy cannot overdraw tokens or blocks, and no stream's output depends on it, only its time.
//
// A policy belongs to one engine and is called on its thread alone. It may keep state of its own by stream id.
#pragma once

#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "schedule/view.h"

namespace millrace {

// At most so many tokens for a running stream in this step.
struct Share {
  const Sequence* stream = nullptr;
  int64_t tokens = 0;
};

// What became of a stream; told after the fact.
struct ScheduleEvent {
  enum class Kind { queued, admitted, ran, preempted, left };
  Kind kind = Kind::queued;
  const Sequence* stream = nullptr;
  int64_t tokens = 0;    // ran: of its chunk
  bool sampled = false;  // ran: the step chose a token for it
  double seconds = 0;    // ran: of the whole step
  bool whole = false;    // left: its answer came to its own end
  int64_t kept = 0;      // ran: of its tokens, those that had never been computed
  int64_t lost = 0;      // preempted: tokens that will be computed again
};

class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;

  // Puts the queue, given in order of arrival, in the order in which streams shall be admitted. Whoever does not fit
  // holds up those behind it.
  virtual void rank(std::vector<const Sequence*>& /*queue*/, const ScheduleView& /*view*/) {}

  // Appends who of view.running runs in the next step, in the order in which tokens and blocks are handed out. Who is
  // left out pauses and keeps its blocks.
  virtual void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) = 0;

  // Who of view.running gives its blocks (or its place) to `wanting`, which is running and lacks a block, or waits and
  // is the next to be admitted. Null: nobody; then a running one gives way itself and a waiting one waits. To come to
  // an end, victims must stand behind `wanting` in one order that does not turn around.
  virtual const Sequence* victim(const ScheduleView& view, const Sequence& wanting) = 0;

  // For a waiting `wanting`: seconds that are gained when the victim makes room for it, by the policy's own guess. A
  // preemption that costs more is not made. By default the order counts, whatever it costs.
  virtual double gain_seconds(const Sequence& /*victim*/, const Sequence& /*wanting*/) const {
    return std::numeric_limits<double>::infinity();
  }

  // Tokens whose blocks a stream is promised when it is admitted. What it needs beyond them it may have to take from a
  // victim.
  virtual int64_t promise(const Sequence& stream, const PlannerLimits& /*limits*/) const { return stream.max_total; }

  // Who of view.running leaves memory ahead of need, so that admissions find room; null: nobody.
  virtual const Sequence* leave_early(const ScheduleView& /*view*/) { return nullptr; }

  // Refuses a new stream, with the reason: it cannot be served as it asks. Errors: resource.
  virtual Result<void> accept(const Sequence& /*stream*/, const ScheduleView& /*view*/) { return {}; }

  virtual void observe(const ScheduleEvent& /*event*/) {}
};

using PolicyFactory = Result<std::unique_ptr<SchedulerPolicy>> (*)(const OptionValues& options);
const Registry<PolicyFactory>& policies();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<SchedulerPolicy>> make_policy(std::string_view text);

}  // namespace millrace
