#include "schedule/livelock.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/orders.h"

namespace millrace {
namespace {

class RunToCompletion final : public SchedulerPolicy {
 public:
  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    share_decodes_first(view, token_budget, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return last_arrived(view, wanting);
  }
};

}  // namespace

void LivelockWatch::observe(const ScheduleEvent& event) {
  switch (event.kind) {
    case ScheduleEvent::Kind::queued: streams_at_once_ = std::max(streams_at_once_, ++streams_); break;
    case ScheduleEvent::Kind::left:
      --streams_;
      preemptions_ = 0;  // a stream finished
      break;
    case ScheduleEvent::Kind::ran:
      if (event.kept == 0) break;
      preemptions_ = 0;
      streams_at_once_ = streams_;
      kept_ += event.kept;
      if (kept_ > kRemembered) kept_ /= 2, lost_ /= 2;
      break;
    case ScheduleEvent::Kind::preempted:
      ++preemptions_;
      lost_ += event.lost;
      break;
    case ScheduleEvent::Kind::admitted: break;
  }
}

void LivelockWatch::begin_anew() {
  const int64_t streams = streams_;
  *this = {};
  streams_ = streams_at_once_ = streams;
}

void LivelockWatch::step(bool ran, bool moves) { empty_steps_ = ran || moves || streams_ == 0 ? 0 : empty_steps_ + 1; }

std::string LivelockWatch::why() const {
  if (displaced())
    return fmt::format("{} streams were preempted {} times without a new token", streams_at_once_, preemptions_);
  if (wasteful())
    return fmt::format("{} tokens were lost to preemptions while {} were computed for the first time", lost_, kept_);
  return fmt::format("nothing ran in {} steps though {} streams are open", empty_steps_, streams_);
}

std::unique_ptr<SchedulerPolicy> make_run_to_completion() { return std::make_unique<RunToCompletion>(); }

}  // namespace millrace
