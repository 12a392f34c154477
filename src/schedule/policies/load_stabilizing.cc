// Streams start in groups at intervals, so that the sum of the lengths of running streams stays even (He and Zhai,
// 2024, "FastDecode", section 4.2): schedule/stable_load.h. The size of a group follows from the limit and from the
// expected length of the first waiting stream. A stream of the group starts if the sum stays within the limit at all
// later ends. In order of arrival; a stream that does not fit holds back those after it. The schedule is computed again
// in every step from the streams that run, so that answers which end early make room at once.
#include <cmath>

#include "schedule/orders.h"
#include "schedule/policies/factories.h"
#include "schedule/predictor.h"
#include "schedule/stable_load.h"

namespace millrace {
namespace {

class LoadStabilizing final : public SchedulerPolicy {
 public:
  LoadStabilizing(int64_t load, int64_t interval, std::unique_ptr<Predictor> predictor)
      : load_(load), interval_(interval), predictor_(std::move(predictor)) {}

  void rank(std::vector<const Sequence*>& queue, const ScheduleView& view) override {
    ++step_;
    StableLoad load(load_ > 0 ? load_ : view.limits.total_blocks * view.limits.block_tokens / 2);
    begin_group(*queue.front(), load.limit());
    for (const Sequence* stream : view.running) add(*stream, load);
    size_t starts = 0;
    for (; starts < queue.size(); ++starts) {
      const Sequence& stream = *queue[starts];
      const bool alone = view.running.empty() && starts == 0;  // a stream longer than the limit runs alone
      if (!alone && (credit_ < 1 || !load.fits(0, stream.size(), steps_of(stream)))) break;
      credit_ = std::max(0.0, credit_ - 1);
      add(stream, load);
    }
    queue.resize(starts);
  }
  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    share_decodes_first(view, token_budget, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return last_arrived(view, wanting);
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override {
    return stream.size() + steps_of(stream);
  }
  void observe(const ScheduleEvent& event) override {
    if (predictor_ && event.kind == ScheduleEvent::Kind::left && event.whole) predictor_->learn(*event.stream);
  }

 private:
  // Every interval, as many streams may start as keep the sum even; fractions of a stream add up.
  void begin_group(const Sequence& next, int64_t limit) {
    if (step_ < next_group_) return;
    const auto steps = static_cast<double>(std::max<int64_t>(1, steps_of(next)));
    const double interval = interval_ > 0 ? static_cast<double>(interval_) : std::max(1.0, std::floor(steps / 32));
    const double streams =
        StableLoad::streams_for(static_cast<double>(limit), static_cast<double>(next.size()), steps, interval);
    credit_ = std::min(credit_, 1.0) + StableLoad::group_streams(streams, steps, interval);
    next_group_ = step_ + static_cast<int64_t>(interval);
  }
  // Steps that the stream has left: one a token.
  int64_t steps_of(const Sequence& stream) const {
    const int64_t most = std::max<int64_t>(0, stream.max_total - stream.size());
    if (!predictor_ || most == 0) return most;
    const double predicted = std::min(predictor_->answer_tokens(stream), 1e9);
    return std::clamp<int64_t>(static_cast<int64_t>(predicted) - stream.generated(), 1, most);
  }
  void add(const Sequence& stream, StableLoad& load) const { load.add(0, stream.size(), steps_of(stream)); }

  int64_t load_, interval_;
  std::unique_ptr<Predictor> predictor_;  // null: answers have max_tokens
  int64_t step_ = 0, next_group_ = 0;
  double credit_ = 0;  // streams of the present group that may still start
};

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_load_stabilizing(const OptionValues& options) {
  std::unique_ptr<Predictor> predictor;
  if (!options.text("predictor").empty()) {
    MILLRACE_TRY(predictor, make_predictor(options.text("predictor")));
  }
  return std::unique_ptr<SchedulerPolicy>(
      std::make_unique<LoadStabilizing>(options.integer("load"), options.integer("interval"), std::move(predictor)));
}

}  // namespace millrace
