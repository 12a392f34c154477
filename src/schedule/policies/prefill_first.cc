// Prompts before decodes: while any running stream's prompt is unfinished, steps contain only prompts, each as whole as
// the step allows, and decoding streams wait. Minimizes the time to first token, but every new prompt stalls the other
// streams: vLLM's behaviour before chunked prefill, and the baseline of Sarathi-Serve.
#include "schedule/orders.h"
#include "schedule/policies/factories.h"

namespace millrace {
namespace {

class PrefillFirst final : public SchedulerPolicy {
 public:
  explicit PrefillFirst(Reserve reserve) : reserve_(reserve) {}

  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    int64_t left = token_budget;
    for (const Sequence* stream : view.running) {
      if (stream->decoding() || left <= 0) continue;
      if (!out.empty() && stream->remaining() > left) break;  // split only prompts that fit into no step
      out.push_back({stream, std::min(left, stream->remaining())});
      left -= out.back().tokens;
    }
    if (out.empty()) share_decodes_first(view, token_budget, out);
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

Result<std::unique_ptr<SchedulerPolicy>> make_prefill_first(const OptionValues& options) {
  MILLRACE_TRY(Reserve reserve, read_reserve(options));
  return std::unique_ptr<SchedulerPolicy>(std::make_unique<PrefillFirst>(reserve));
}

}  // namespace millrace
