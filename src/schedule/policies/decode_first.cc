// Dynamic split-fuse (Holmes et al., 2024, DeepSpeed-FastGen): every step runs the same number of tokens. Decodes come
// first; prompts are split and combined to fill the rest of the step exactly, so that a step's time hardly varies.
#include "schedule/orders.h"
#include "schedule/policies/factories.h"

namespace millrace {
namespace {

class DecodeFirst final : public SchedulerPolicy {
 public:
  DecodeFirst(int64_t step_tokens, Reserve reserve) : step_tokens_(step_tokens), reserve_(reserve) {}

  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    share_decodes_first(view, step_tokens_ > 0 ? std::min(step_tokens_, token_budget) : token_budget, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return last_arrived(view, wanting);
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override {
    return promised_tokens(reserve_, stream);
  }

 private:
  int64_t step_tokens_;
  Reserve reserve_;
};

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_decode_first(const OptionValues& options) {
  MILLRACE_TRY(Reserve reserve, read_reserve(options));
  return std::unique_ptr<SchedulerPolicy>(std::make_unique<DecodeFirst>(options.integer("step_tokens"), reserve));
}

}  // namespace millrace
