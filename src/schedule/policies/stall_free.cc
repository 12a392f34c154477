// Stall-free batching (Agrawal et al., 2024, Sarathi-Serve): a step takes no longer than the target time between
// tokens. All decodes run, along with as many prompt tokens as fit into that time by the cost model. Without decodes
// there is nothing to stall, and prompts get the whole budget.
#include "schedule/orders.h"
#include "schedule/policies/factories.h"

namespace millrace {
namespace {

class StallFree final : public SchedulerPolicy {
 public:
  StallFree(double tbt_seconds, int64_t chunk, int64_t least, Reserve reserve)
      : tbt_seconds_(tbt_seconds), chunk_(chunk), least_(least), reserve_(reserve) {}

  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    StepShape decodes;
    const Sequence* prompt = nullptr;
    for (const Sequence* stream : view.running) {
      if (stream->decoding())
        decodes.add(stream->computed, 1, true, stream->depth);
      else if (!prompt)
        prompt = stream;
    }
    int64_t room = token_budget;
    if (prompt && decodes.tokens > 0) {
      if (chunk_ > 0)
        room = std::max<int64_t>(1, chunk_ - decodes.tokens);
      else if (view.cost)
        room = prompt_tokens(view, decodes, *prompt, token_budget - decodes.tokens);
    }
    share_decodes_first(view, token_budget, room, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return last_arrived(view, wanting);
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override {
    return promised_tokens(reserve_, stream);
  }

 private:
  // The most prompt tokens that keep the step within the target. A minimum always runs, or prompts would never finish.
  int64_t prompt_tokens(const ScheduleView& view, const StepShape& decodes, const Sequence& prompt,
                        int64_t most) const {
    int64_t low = std::min(least_, most), high = most;
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      StepShape shape = decodes;
      shape.add(prompt.computed, middle, true, prompt.depth);
      if (view.cost->step_seconds(shape) <= tbt_seconds_)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

  double tbt_seconds_;
  int64_t chunk_, least_;
  Reserve reserve_;
};

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_stall_free(const OptionValues& options) {
  MILLRACE_TRY(Reserve reserve, read_reserve(options));
  return std::unique_ptr<SchedulerPolicy>(std::make_unique<StallFree>(
      options.number("tbt_ms") * 1e-3, options.integer("chunk"), options.integer("least"), reserve));
}

}  // namespace millrace
