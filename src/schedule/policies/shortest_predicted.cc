// Shortest predicted answer first, by buckets of lengths: within a bucket, order of arrival (Jin et al., 2023, S3; Hu
// et al., 2024, TetriInfer). A stream is promised blocks up to the end of its bucket; a longer answer outgrows them and
// may be preempted. Streams that have waited too long go first, so that long answers do not starve.
#include "schedule/orders.h"
#include "schedule/policies/factories.h"
#include "schedule/predictor.h"

namespace millrace {
namespace {

class ShortestPredicted final : public SchedulerPolicy {
 public:
  ShortestPredicted(std::unique_ptr<Predictor> predictor, int64_t bucket, double patience_seconds)
      : predictor_(std::move(predictor)), bucket_(bucket), patience_seconds_(patience_seconds) {}

  void rank(std::vector<const Sequence*>& queue, const ScheduleView& view) override {
    keyed_.clear();
    for (const Sequence* stream : queue) {
      const bool waited = static_cast<double>(view.now_ns - stream->times.submitted) * 1e-9 > patience_seconds_;
      keyed_.emplace_back(waited ? 0 : bucket(*stream), stream);
    }
    std::ranges::stable_sort(keyed_, {}, [](const auto& entry) { return entry.first; });
    for (size_t i = 0; i < queue.size(); ++i) queue[i] = keyed_[i].second;
  }
  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    share_decodes_first(view, token_budget, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return last_arrived(view, wanting);
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override {
    return std::min(stream.max_total, stream.prompt_tokens + bucket(stream) * bucket_);
  }
  void observe(const ScheduleEvent& event) override {
    if (event.kind == ScheduleEvent::Kind::left && event.whole && answers(*event.stream))
      predictor_->learn(*event.stream);
  }

 private:
  // False: only its prompt is read, which says nothing of answers.
  static bool answers(const Sequence& stream) { return stream.max_total != stream.prompt_tokens; }

  // Bucket 1 holds answers of 1 to bucket_ tokens. An answer that outgrew its prediction moves at least to the next
  // one.
  int64_t bucket(const Sequence& stream) const {
    const double predicted = answers(stream) ? std::min(predictor_->answer_tokens(stream), 1e9) : 0;
    const int64_t tokens = std::max(static_cast<int64_t>(predicted), stream.generated() + 1);
    return (std::max<int64_t>(1, tokens) + bucket_ - 1) / bucket_;
  }

  std::unique_ptr<Predictor> predictor_;
  int64_t bucket_;
  double patience_seconds_;
  std::vector<std::pair<int64_t, const Sequence*>> keyed_;
};

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_shortest_predicted(const OptionValues& options) {
  MILLRACE_TRY(auto predictor, make_predictor(options.text("predictor")));
  return std::unique_ptr<SchedulerPolicy>(std::make_unique<ShortestPredicted>(
      std::move(predictor), options.integer("bucket"), options.number("patience_ms") * 1e-3));
}

}  // namespace millrace
