// Layers are read from the packed cache ahead of the pass, into memory that they share; the layers that fit in addition
// stay in memory. After FlexGen (Sheng et al., 2023), which reads whole layers, as this does: all streams of a
// batch, and all tokens of a prompt's chunk, share one read of a layer. A pass reads the layers in a circle, for which
// dropping the least recently used one is the worst choice: so the set that stays is fixed, spread evenly, and of the
// others the layer that is needed last leaves first.
#include <fmt/format.h>

#include <algorithm>

#include "base/memory_accounts.h"
#include "models/weight_sources/records.h"
#include "models/weight_units/unit_plan.h"

namespace millrace {
namespace {

int64_t layer_bytes(const WeightPlaces::Layer& layer) {
  int64_t bytes = UnitStore::bytes_of(layer.own);
  for (const auto& expert : layer.experts) bytes += UnitStore::bytes_of(expert);
  return bytes;
}

struct StreamPlan {
  std::vector<char> kept;  // by layer
  int64_t capacity = 0;    // bytes that the others share
  int64_t bytes = 0;       // of all memory
  int64_t ahead = 0;       // layers read ahead
};

// Returns the plan that keeps `count` layers in memory.
StreamPlan plan_of(const WeightPlaces& places, int64_t count, int64_t ahead) {
  const auto layers = std::ssize(places.layers);
  StreamPlan plan{.kept = std::vector<char>(places.layers.size()), .ahead = ahead};
  plan.bytes = UnitStore::bytes_of(places.others);
  int64_t largest = 0, streamed = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t bytes = layer_bytes(places.layers[static_cast<size_t>(i)]);
    plan.kept[static_cast<size_t>(i)] = (i + 1) * count / layers > i * count / layers;
    if (plan.kept[static_cast<size_t>(i)]) {
      plan.bytes += bytes;
    } else {
      largest = std::max(largest, bytes);
      streamed += bytes;
    }
  }
  plan.capacity = std::min(streamed, (1 + ahead) * largest);
  plan.bytes += plan.capacity;
  return plan;
}

// Keeps as many layers as `limit` bytes allow, or as the option `resident` says. If not even one that runs and those
// that are read ahead fit, fewer are read ahead, unless the option `ahead` says how many.
Result<StreamPlan> plan_stream(const WeightPlaces& places, const OptionValues& options, int64_t limit) {
  const int64_t layers = std::ssize(places.layers);
  int64_t ahead = options.integer("ahead");
  const bool given = options.integer("resident") >= 0;
  int64_t count = given ? std::min(layers, options.integer("resident")) : layers;
  StreamPlan plan = plan_of(places, count, ahead);
  while (!given && plan.bytes > limit && count > 0) plan = plan_of(places, --count, ahead);
  while (!options.given("ahead") && plan.bytes > limit && ahead > 0) plan = plan_of(places, count, --ahead);
  if (plan.bytes <= limit) return plan;
  return Error::resource(fmt::format(
      "the head, {} layers that stay, the layer that runs and {} read ahead need {}, and weights may have {}; raise "
      "--memory or the option 'memory'{}{}",
      count, ahead, format_bytes(plan.bytes), format_bytes(limit), ahead > 0 ? ", or lower 'ahead'" : "",
      given ? ", or lower 'resident'" : ""));
}

Result<StreamPlan> plan_with_options(WeightPlaces& places, const OptionValues& options, int64_t limit) {
  MILLRACE_TRY(const int64_t most, memory_option(options, limit));
  MILLRACE_TRY_VOID(apply_place_rules(options, places));
  return plan_stream(places, options, most);
}

// The layer that the pass needs last has the least worth.
class CircleOrder final : public KeepOrder {
 public:
  explicit CircleOrder(size_t layers) : layers_(layers) {}
  void used(size_t unit, bool) override {
    if (unit < layers_) at_ = unit;
  }
  double worth(size_t unit) const override { return -static_cast<double>((unit + layers_ - at_) % layers_); }
  bool may_replace(size_t victim, size_t incoming) const override { return worth(victim) < worth(incoming); }

 private:
  size_t layers_, at_ = 0;
};

class StreamWeights final : public WeightSource {
 public:
  StreamWeights(std::unique_ptr<UnitStore> store, std::vector<char> kept, int64_t ahead)
      : store_(std::move(store)), kept_(std::move(kept)), ahead_(ahead) {}

  std::optional<WeightFigures> figures() const override { return store_->figures(); }

 private:
  // Experts belong to their layer, which is leased already.
  Result<void> begin(WeightUnit of) override {
    if (of.expert != WeightUnit::kNoExpert) return {};
    const auto layer = static_cast<size_t>(of.layer);
    std::vector<size_t> next;
    for (size_t i = 1; i < kept_.size() && std::ssize(next) < ahead_; ++i)
      if (const size_t other = (layer + i) % kept_.size(); !kept_[other]) next.push_back(other);
    MILLRACE_TRY_VOID(store_->begin({{layer}}, next));
    return {};
  }
  void end(WeightUnit of) override {
    if (of.expert == WeightUnit::kNoExpert) store_->end(static_cast<size_t>(of.layer));
  }

  std::unique_ptr<UnitStore> store_;
  const std::vector<char> kept_;
  const int64_t ahead_;
};

Result<int64_t> stream_memory(const WeightPlaces& places, const OptionValues& options, int64_t limit) {
  WeightPlaces own = places;
  MILLRACE_TRY(const StreamPlan plan, plan_with_options(own, options, limit));
  return plan.bytes;
}

Result<PlacedWeights> stream_source(WeightFile file, WeightPlaces places, const OptionValues& options, int64_t memory) {
  MILLRACE_TRY(StreamPlan plan, plan_with_options(places, options, memory));
  std::vector<UnitStore::Unit> units;
  for (size_t i = 0; i < places.layers.size(); ++i) {
    WeightPlaces::Layer& layer = places.layers[i];
    UnitStore::Unit unit{std::move(layer.own), plan.kept[i] != 0, fmt::format("layer {}", i)};
    for (auto& expert : layer.experts) unit.ranges.insert(unit.ranges.end(), expert.begin(), expert.end());
    units.push_back(std::move(unit));
  }
  const size_t layers = units.size();
  units.push_back({std::move(places.others), true, "tensors of no layer"});
  UnitStore::Options store = store_options(options);
  store.capacity = plan.capacity;
  MILLRACE_TRY(auto made,
               UnitStore::create(std::move(file), std::move(units), store, std::make_unique<CircleOrder>(layers)));
  const uint8_t* packed = made->packed();
  return PlacedWeights{std::make_unique<StreamWeights>(std::move(made), std::move(plan.kept), plan.ahead), packed};
}

// Every layer that does not stay is read once in a pass, while the layers before it run.
Result<WeightForecast> predict_stream(const WeightQuestion& question) {
  WeightPlaces places = question.places;
  const OffloadCosts& costs = places.costs;
  const OffloadWork& work = question.work;
  MILLRACE_TRY(const StreamPlan plan, plan_with_options(places, question.options, question.limit));
  WeightForecast out{.kept_bytes = plan.bytes - plan.capacity, .cache_bytes = plan.capacity};
  for (size_t i = 0; i < places.layers.size(); ++i)
    if (!plan.kept[i]) out.decode_bytes += static_cast<double>(layer_bytes(places.layers[i]));
  out.prefill_bytes = out.decode_bytes;
  out.decode_seconds = overlapped_seconds(costs, decode_seconds(costs, places.model, work.streams, work.mean_context()),
                                          out.decode_bytes);
  out.prefill_seconds = overlapped_seconds(costs, prefill_seconds(costs, places.model, work.chunk), out.prefill_bytes);
  return out;
}

}  // namespace

const WeightSourceMember kStreamWeights = {
    .from_file = true, .checks_reads = true, .memory = stream_memory, .make = stream_source, .predict = predict_stream};

}  // namespace millrace
