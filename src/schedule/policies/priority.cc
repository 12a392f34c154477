// The request's priority, higher first, then arrival. A stream of higher priority preempts those of the lowest.
#include "schedule/orders.h"
#include "schedule/policies/factories.h"

namespace millrace {
namespace {

int64_t by_priority(const Sequence& stream) { return -stream.request.priority; }

class Priority final : public SchedulerPolicy {
 public:
  Priority(bool preempt, Reserve reserve) : preempt_(preempt), reserve_(reserve) {}

  void rank(std::vector<const Sequence*>& queue, const ScheduleView&) override { sort_by(queue, by_priority); }
  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    order_.assign(view.running.begin(), view.running.end());
    sort_by(order_, by_priority);
    ScheduleView ordered = view;
    ordered.running = order_;
    share_decodes_first(ordered, token_budget, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    if (wanting.phase == StreamPhase::running) return last_behind(view, wanting, by_priority);
    const Sequence* last = preempt_ ? last_behind(view, wanting, by_priority) : nullptr;
    return last && last->request.priority < wanting.request.priority ? last
                                                                     : nullptr;  // equals do not preempt each other
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override {
    return promised_tokens(reserve_, stream);
  }

 private:
  bool preempt_;
  Reserve reserve_;
  std::vector<const Sequence*> order_;
};

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_priority(const OptionValues& options) {
  MILLRACE_TRY(Reserve reserve, read_reserve(options));
  return std::unique_ptr<SchedulerPolicy>(std::make_unique<Priority>(options.boolean("preempt"), reserve));
}

}  // namespace millrace
