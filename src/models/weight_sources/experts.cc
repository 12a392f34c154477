// Mixtures of experts: all weights but the routed experts stay in memory, and the experts share the memory that is left
// as a cache. An expert that is not there is read before it runs, never dropped or replaced, so answers do not change.
// Experts that a pass will probably need are read ahead: the next layer's choice is guessed by its router on this
// layer's input (Eliseev and Mazur, 2023, "Fast Inference of Mixture-of-Experts Language Models with Offloading"), or
// by which experts followed these before (MoE-Infinity: Xue et al., 2024). A chunk of a prompt runs the experts of a
// layer in groups that fit, so that each is read once.
//
// With the option `cold`, the experts that a text used least are packed in fewer bits (cold_experts.h). That is the one
// option which changes answers, and which experts are cold does not depend on the cache.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/memory_accounts.h"
#include "models/weight_sources/cold_experts.h"
#include "models/weight_sources/records.h"
#include "models/weight_units/expert_pairs.h"
#include "models/weight_units/exploration.h"
#include "models/weight_units/unit_plan.h"

namespace millrace {
namespace {

enum class Guess : uint8_t { none, router, pairs };

Result<Guess> guess_option(const OptionValues& options) {
  const std::string& text = options.text("guess");
  if (text == "router") return Guess::router;
  if (text == "pairs") return Guess::pairs;
  if (text == "none") return Guess::none;
  return Error::user(fmt::format("guess: must be router, pairs or none, got {}", text));
}

std::vector<size_t> experts_by_layer(const WeightPlaces& places) {
  std::vector<size_t> out;
  for (const WeightPlaces::Layer& layer : places.layers) out.push_back(layer.experts.size());
  return out;
}

struct ExpertPlan {
  int64_t kept = 0, capacity = 0;
  int64_t largest = 0;  // bytes of the largest expert
};

Result<ExpertPlan> plan_experts(WeightPlaces& places, const OptionValues& options, int64_t limit) {
  MILLRACE_TRY(const int64_t most, memory_option(options, limit));
  MILLRACE_TRY_VOID(apply_place_rules(options, places));
  MILLRACE_TRY(const Guess guess, guess_option(options));
  ExpertPlan plan{.kept = UnitStore::bytes_of(places.others)};
  if (guess == Guess::pairs) plan.kept += ExpertPairs::bytes(experts_by_layer(places));
  int64_t all = 0;
  for (const WeightPlaces::Layer& layer : places.layers) {
    plan.kept += UnitStore::bytes_of(layer.own);
    for (const auto& expert : layer.experts) {
      const int64_t bytes = UnitStore::bytes_of(expert);
      all += bytes;
      plan.largest = std::max(plan.largest, bytes);
    }
  }
  if (std::ranges::all_of(places.layers, [](const auto& layer) { return layer.experts.empty(); }))
    return Error::unsupported("the model has no mixture of experts; use weights=stream");
  // Two: one runs while the next is read.
  const int64_t least = plan.kept + std::min(all, 2 * plan.largest);
  if (least > most)
    return Error::resource(
        fmt::format("all weights but the routed experts, and two experts, need {}, and weights may have {}; raise the "
                    "limit, or use weights=stream",
                    format_bytes(least), format_bytes(most)));
  plan.capacity = std::min(all, most - plan.kept);
  return plan;
}

class ExpertWeights final : public WeightSource {
 public:
  ExpertWeights(std::unique_ptr<UnitStore> store, const WeightPlaces& places, Guess guess, int64_t guesses)
      : store_(std::move(store)),
        guess_(guess),
        guesses_(guesses),
        pairs_(guess == Guess::pairs ? experts_by_layer(places) : std::vector<size_t>()) {
    size_t first = places.layers.size();
    for (const WeightPlaces::Layer& layer : places.layers) {
      first_.push_back(first);
      first += layer.experts.size();
      cold_.push_back(layer.cold);
    }
  }

  int64_t router_guesses() const override { return guess_ == Guess::router && guesses_pay() ? guesses_ : 0; }
  std::optional<WeightFigures> figures() const override {
    WeightFigures out = store_->figures();
    out.experts = ran_;
    out.cold_experts = cold_ran_;
    return out;
  }

 private:
  size_t unit(WeightUnit of) const {
    return of.expert == WeightUnit::kNoExpert ? static_cast<size_t>(of.layer)
                                              : first_[static_cast<size_t>(of.layer)] + static_cast<size_t>(of.expert);
  }

  // Layers without their experts always are in memory.
  Result<void> begin(WeightUnit of) override {
    if (of.expert == WeightUnit::kNoExpert) return {};
    MILLRACE_TRY_VOID(store_->begin({{unit(of)}}, {}));
    return {};
  }
  void end(WeightUnit of) override {
    if (of.expert != WeightUnit::kNoExpert) store_->end(unit(of));
  }
  Result<int64_t> begin_experts(int64_t layer, std::span<const int32_t> experts,
                                std::span<const int32_t> guesses) override {
    std::vector<size_t> units, next;
    for (int32_t expert : experts) units.push_back(unit({layer, expert}));
    for (int32_t expert : guesses) next.push_back(unit({layer + 1, expert}));
    if (guess_ == Guess::pairs) guess_pairs(layer, experts, next);
    MILLRACE_TRY(const int64_t begun, store_->begin(units, next));
    count(layer, experts.first(static_cast<size_t>(begun)));
    return begun;
  }

  void guess_pairs(int64_t layer, std::span<const int32_t> experts, std::vector<size_t>& next) {
    const std::lock_guard lock(mutex_);
    pairs_.observe(layer, experts);
    if (!guesses_pay()) return;
    for (int32_t expert : pairs_.guess(layer, experts, static_cast<size_t>(guesses_)))
      next.push_back(unit({layer + 1, expert}));
  }

  void count(int64_t layer, std::span<const int32_t> experts) {
    ran_ += std::ssize(experts);
    const std::vector<bool>& cold = cold_[static_cast<size_t>(layer)];
    if (cold.empty()) return;
    cold_ran_ += std::ranges::count_if(experts, [&](int32_t expert) { return cold[static_cast<size_t>(expert)]; });
  }

  // Wrong guesses cost reads that others wait for. While most of them are wrong, some are still made, to notice when
  // they no longer are.
  bool guesses_pay() const { return store_->right_expectations() >= 0.4 || explores(asked_.fetch_add(1)); }

  std::unique_ptr<UnitStore> store_;
  mutable std::atomic<uint64_t> asked_{0};
  const Guess guess_;
  const int64_t guesses_;
  std::vector<size_t> first_;                  // by layer: the unit of its first expert
  std::vector<std::vector<bool>> cold_;        // WeightPlaces::Layer::cold
  std::atomic<int64_t> ran_{0}, cold_ran_{0};  // experts of passes, each once for all tokens of a pass
  std::mutex mutex_;
  ExpertPairs pairs_;  // only with Guess::pairs
};

Result<int64_t> experts_memory(const WeightPlaces& places, const OptionValues& options, int64_t limit) {
  WeightPlaces own = places;
  MILLRACE_TRY(const ExpertPlan plan, plan_experts(own, options, limit));
  return plan.kept + plan.capacity;
}

Result<PlacedWeights> experts_source(WeightFile file, WeightPlaces places, const OptionValues& options,
                                     int64_t memory) {
  const WeightPolicy policy = cold_policy(places, options);
  MILLRACE_TRY(const ExpertPlan plan, plan_experts(places, options, memory));
  MILLRACE_TRY(const Guess guess, guess_option(options));
  std::vector<UnitStore::Unit> units;
  size_t with_experts = 0;
  for (size_t i = 0; i < places.layers.size(); ++i) {
    units.push_back({places.layers[i].own, true, fmt::format("layer {}", i)});
    with_experts += !places.layers[i].experts.empty();
  }
  for (size_t i = 0; i < places.layers.size(); ++i)
    for (size_t e = 0; e < places.layers[i].experts.size(); ++e)
      units.push_back({places.layers[i].experts[e], false, fmt::format("expert {} of layer {}", e, i)});
  units.push_back({places.others, true, "tensors of no layer"});
  // A use is one expert in one pass. The half-life is 64 uses for each layer with experts.
  auto order = make_keep_order(options.text("keep"), units.size(), plan.capacity / std::max<int64_t>(1, plan.largest),
                               static_cast<double>(std::max<size_t>(64, 4 * with_experts * 16)));
  if (!order) return Error::user(fmt::format("keep: must be weighed, lru, lfu or arc, got {}", options.text("keep")));
  UnitStore::Options store = store_options(options);
  store.capacity = plan.capacity;
  store.group_bytes = plan.capacity / 2;
  MILLRACE_TRY(auto made, UnitStore::create(std::move(file), std::move(units), store, std::move(order)));
  const uint8_t* packed = made->packed();
  auto source = std::make_unique<ExpertWeights>(std::move(made), places, guess, options.integer("guesses"));
  source->set_policy(policy);
  return PlacedWeights{std::move(source), packed};
}

// A pass waits for the chosen experts that the cache lacks. The cache holds the most frequent ones.
Result<WeightForecast> predict_experts(const WeightQuestion& question) {
  WeightPlaces places = question.places;
  const OffloadModel model = places.model;
  const OffloadCosts costs = places.costs;
  const OffloadWork& work = question.work;
  MILLRACE_TRY(const ExpertPlan plan, plan_experts(places, question.options, question.limit));
  double all = 0;
  for (const WeightPlaces::Layer& layer : places.layers)
    for (const auto& expert : layer.experts) all += static_cast<double>(UnitStore::bytes_of(expert));
  const double share = all > 0 ? static_cast<double>(plan.capacity) / all : 1;
  const double missed = 1 - expert_hits(model.experts, share, work.expert_skew.value_or(costs.expert_skew));
  const auto read = [&](int64_t rows) {
    const double chosen = distinct_experts(model.experts, model.used_experts, rows);
    return missed * all * chosen / static_cast<double>(std::max<int64_t>(1, model.experts));
  };
  WeightForecast out{.kept_bytes = plan.kept,
                     .cache_bytes = plan.capacity,
                     .decode_bytes = read(work.streams),
                     .prefill_bytes = read(work.chunk)};
  out.decode_seconds =
      decode_seconds(costs, model, work.streams, work.mean_context()) + out.decode_bytes / costs.expert_bytes;
  out.prefill_seconds = overlapped_seconds(costs, prefill_seconds(costs, model, work.chunk), out.prefill_bytes);
  out.note = fmt::format("{:.0f} % of experts' uses are in memory", 100 * (1 - missed));
  return out;
}

}  // namespace

const WeightSourceMember kExpertWeights = {.from_file = true,
                                           .checks_reads = true,
                                           .memory = experts_memory,
                                           .make = experts_source,
                                           .cold_experts = choose_cold_experts,
                                           .predict = predict_experts};

}  // namespace millrace
