// Skip-join multi-level feedback queue (Wu et al., 2023, FastServe): short answers should not wait for long ones, whose
// length is unknown. Level i has a quantum of 2^i times the first one's. A stream joins the first level whose quantum
// covers its prompt's time, and drops a level when it has used up its quantum; lower levels run first, so long-running
// streams pause while others come and go. A starved stream starts again at the top. Paused streams retain their blocks
// while there is room; the last in order is swapped out before memory runs out (proactive swap).
//
// Paused streams exist only if more streams are resident than a step runs: EngineOptions::resident_streams.
#include <iterator>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "schedule/orders.h"
#include "schedule/policies/factories.h"

namespace millrace {
namespace {

struct MlfqOptions {
  double quantum_seconds = 0.05;
  int levels = 8;
  double starve_seconds = 60;
  double headroom = 0.05;
  Reserve reserve = Reserve::prompt;
};

class SkipJoinMlfq final : public SchedulerPolicy {
 public:
  explicit SkipJoinMlfq(const MlfqOptions& options) : options_(options) {}

  void rank(std::vector<const Sequence*>& queue, const ScheduleView& view) override {
    refresh(view);
    sort_by(queue, [this](const Sequence& stream) { return level(stream); });
  }

  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    refresh(view);
    order_.clear();
    std::ranges::copy_if(view.running, std::back_inserter(order_),
                         [](const Sequence* stream) { return stream->phase == StreamPhase::running; });
    std::ranges::sort(order_, {},
                      [this](const Sequence* stream) { return std::tuple(level(*stream), stream->arrival); });
    // The levels determine the batch; in it, decoding streams need one token each, and prompts get the rest. A prompt
    // that took the whole step would stall every stream ranked below it, for lack of a single token of budget each.
    order_.resize(std::min(order_.size(), static_cast<size_t>(view.limits.max_streams)));
    const auto decodes = std::ranges::count_if(order_, [](const Sequence* stream) { return stream->decoding(); });
    int64_t prompts = token_budget - decodes;
    for (const Sequence* stream : order_) {
      const int64_t tokens = stream->decoding() ? 1 : std::min(prompts, stream->remaining());
      if (tokens <= 0) continue;
      out.push_back({stream, tokens});
      if (!stream->decoding()) prompts -= tokens;
    }
  }

  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    auto order = [this](const Sequence& stream) { return level(stream); };
    const Sequence* last = last_behind(view, wanting, order);
    if (wanting.phase == StreamPhase::running) return last;
    return last && level(*last) > level(wanting) ? last : nullptr;
  }
  // By its level, the victim would still use up its quantum; with the preemption it does so after the newcomer's.
  double gain_seconds(const Sequence& victim, const Sequence& wanting) const override {
    const auto place = places_.find(victim.id);
    const double served = place == places_.end() ? 0 : place->second.served;
    return quantum(level(victim)) - served - quantum(level(wanting));
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override {
    return promised_tokens(options_.reserve, stream);
  }

  const Sequence* leave_early(const ScheduleView& view) override {
    if (view.waiting.empty() ||
        static_cast<double>(view.free_blocks) >= options_.headroom * static_cast<double>(view.limits.total_blocks))
      return nullptr;
    int first_waiting = options_.levels;
    for (const Sequence* stream : view.waiting) first_waiting = std::min(first_waiting, level(*stream));
    const Sequence* last = nullptr;
    for (const Sequence* stream : view.running) {
      if (stream->kv.blocks.empty() || stream->phase != StreamPhase::running || level(*stream) <= first_waiting)
        continue;
      if (!last || std::tuple(level(*stream), stream->arrival) > std::tuple(level(*last), last->arrival)) last = stream;
    }
    return last;
  }

  void observe(const ScheduleEvent& event) override {
    if (event.kind == ScheduleEvent::Kind::left) {
      places_.erase(event.stream->id);
    } else if (event.kind == ScheduleEvent::Kind::ran) {
      Place& place = places_[event.stream->id];
      place.served += std::min(event.seconds, own_seconds(*event.stream, event.tokens));
      place.ran = true;
      if (place.served >= quantum(place.level) && place.level + 1 < options_.levels) {
        ++place.level;
        place.served = 0;
      }
    }
  }

 private:
  struct Place {
    int level = -1;        // -1: has not joined
    double served = 0;     // seconds at this level
    int64_t last_ran = 0;  // ran or joined last
    bool ran = false;      // since the last refresh
  };

  double quantum(int level) const { return options_.quantum_seconds * static_cast<double>(uint64_t{1} << level); }
  int level(const Sequence& stream) const {
    auto found = places_.find(stream.id);
    return found == places_.end() || found->second.level < 0 ? 0 : found->second.level;
  }

  // The time that the last chunk would have taken alone. A stream is not charged for other prompts in the step:
  // otherwise a step of many prompts would use up the quantum of each, and drop them all below the next arrival.
  double own_seconds(const Sequence& stream, int64_t tokens) const {
    if (!cost_) return std::numeric_limits<double>::max();
    StepShape shape;
    shape.add(std::max<int64_t>(0, stream.computed - tokens), tokens, true, stream.depth);
    return cost_->step_seconds(shape);
  }

  // Assigns new streams a level and lifts starved ones.
  void refresh(const ScheduleView& view) {
    cost_ = view.cost;
    for (const auto& streams : {view.waiting, view.running}) {
      for (const Sequence* stream : streams) {
        Place& place = places_[stream->id];
        if (place.level < 0) {
          place = {join_level(*stream, view), 0, view.now_ns, false};
        } else if (place.ran) {
          place.ran = false;
          place.last_ran = view.now_ns;
        } else if (place.level > 0 &&
                   static_cast<double>(view.now_ns - place.last_ran) * 1e-9 > options_.starve_seconds) {
          place = {0, 0, view.now_ns, false};
        }
      }
    }
  }

  int join_level(const Sequence& stream, const ScheduleView& view) const {
    if (!view.cost) return 0;
    StepShape shape;
    shape.add(stream.computed, stream.remaining(), true, stream.depth);
    const double first = view.cost->step_seconds(shape);
    int level = 0;
    while (level + 1 < options_.levels && quantum(level) < first) ++level;
    return level;
  }

  MlfqOptions options_;
  const CostModel* cost_ = nullptr;  // owned by the engine
  std::unordered_map<RequestId, Place> places_;
  std::vector<const Sequence*> order_;
};

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_skip_join_mlfq(const OptionValues& options) {
  MlfqOptions mlfq;
  mlfq.quantum_seconds = options.number("quantum_ms") * 1e-3;
  mlfq.levels = static_cast<int>(options.integer("levels"));
  mlfq.starve_seconds = options.number("starve_ms") * 1e-3;
  mlfq.headroom = options.number("headroom");
  MILLRACE_TRY(mlfq.reserve, read_reserve(options));
  return std::unique_ptr<SchedulerPolicy>(std::make_unique<SkipJoinMlfq>(mlfq));
}

}  // namespace millrace
