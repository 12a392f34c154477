// Earliest deadline first (Liu and Layland, 1973). A request is rejected on arrival, with the figures, if the cost
// model predicts that it cannot meet its deadline after the streams with earlier deadlines. Streams without a deadline
// come last.
#include <fmt/format.h>

#include <limits>

#include "schedule/orders.h"
#include "schedule/policies/factories.h"

namespace millrace {
namespace {

int64_t order(const Sequence& stream) {
  return stream.times.deadline > 0 ? stream.times.deadline : std::numeric_limits<int64_t>::max();
}

class Deadline final : public SchedulerPolicy {
 public:
  Deadline(bool preempt, bool refuse, Reserve reserve) : preempt_(preempt), refuse_(refuse), reserve_(reserve) {}

  void rank(std::vector<const Sequence*>& queue, const ScheduleView&) override { sort_by(queue, order); }
  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    order_.assign(view.running.begin(), view.running.end());
    sort_by(order_, order);
    ScheduleView ordered = view;
    ordered.running = order_;
    share_decodes_first(ordered, token_budget, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    if (wanting.phase == StreamPhase::running) return last_behind(view, wanting, order);
    const Sequence* last = preempt_ ? last_behind(view, wanting, order) : nullptr;
    return last && order(*last) > order(wanting) ? last : nullptr;
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override {
    return promised_tokens(reserve_, stream);
  }

  Result<void> accept(const Sequence& stream, const ScheduleView& view) override {
    if (!refuse_ || stream.times.deadline == 0 || !view.cost) return {};
    // Prompts before this one, its own prompt, and its answer in a batch with all streams that decode meanwhile.
    double prompts = prompt_seconds(stream, view);
    StepShape step;
    step.add(stream.size(), 1, true, stream.depth);
    for (const auto& streams : {view.running, view.waiting}) {
      for (const Sequence* other : streams) {
        if (order(*other) > order(stream)) continue;
        if (!other->decoding()) prompts += prompt_seconds(*other, view);
        if (step.tokens < view.limits.max_streams) step.add(other->size(), 1, true, other->depth);
      }
    }
    const double answer = static_cast<double>(answer_tokens(stream)) * view.cost->step_seconds(step);
    const double left = static_cast<double>(stream.times.deadline - view.now_ns) * 1e-9;
    if (prompts + answer <= left) return {};
    return Error::resource(
        fmt::format("deadline: {:.3f} s from now cannot be met: prompts before it and its own take about {:.3f} s, its "
                    "answer of {} tokens about {:.3f} s",
                    left, prompts, answer_tokens(stream), answer));
  }

 private:
  static int64_t answer_tokens(const Sequence& stream) {
    const int64_t most = stream.max_total - stream.prompt_tokens;
    return stream.request.predicted_tokens >= 0 ? std::min(most, stream.request.predicted_tokens) : most;
  }
  static double prompt_seconds(const Sequence& stream, const ScheduleView& view) {
    StepShape shape;
    shape.add(stream.computed, stream.remaining(), true, stream.depth);
    return view.cost->step_seconds(shape);
  }

  bool preempt_, refuse_;
  Reserve reserve_;
  std::vector<const Sequence*> order_;
};

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_deadline(const OptionValues& options) {
  MILLRACE_TRY(Reserve reserve, read_reserve(options));
  return std::unique_ptr<SchedulerPolicy>(
      std::make_unique<Deadline>(options.boolean("preempt"), options.boolean("refuse"), reserve));
}

}  // namespace millrace
