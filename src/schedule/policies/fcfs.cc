// First come, first served: streams are admitted in order of arrival; in each step every decoding stream gets its token
// and the prompts share the rest of the budget in the same order.
#include "schedule/orders.h"
#include "schedule/policies/factories.h"

namespace millrace {
namespace {

class Fcfs final : public SchedulerPolicy {
 public:
  explicit Fcfs(Reserve reserve) : reserve_(reserve) {}
  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    share_decodes_first(view, token_budget, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return last_arrived(view, wanting);
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override {
    return promised_tokens(reserve_, stream);
  }

 private:
  Reserve reserve_;
};

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_fcfs(const OptionValues& options) {
  MILLRACE_TRY(Reserve reserve, read_reserve(options));
  return std::unique_ptr<SchedulerPolicy>(std::make_unique<Fcfs>(reserve));
}

}  // namespace millrace
