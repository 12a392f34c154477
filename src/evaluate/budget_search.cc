#include "evaluate/budget_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "attention/token_mass.h"
#include "evaluate/scorer.h"

namespace millrace {
namespace {

// Sees each window in one pass.
class PersistenceMeter final : public ForwardObserver {
 public:
  PersistenceMeter(ModelRunner& runner, const BudgetSearchOptions& options)
      : runner_(runner),
        half_(options.context / 2),
        recent_(std::min(options.recent, half_)),
        heads_(runner.kv().layout().heads()),
        by_head_(options.heads),
        layers_(static_cast<size_t>(by_head_ ? heads_ : std::ssize(runner.kv().layout().layers))) {
    for (LayerPersistence& layer : layers_) layer.kept.resize(static_cast<size_t>(half_ - recent_ + 1));
    for (const int64_t skipped : {std::max<int64_t>(0, half_ - options.history), half_})
      mass_.spans.push_back({.span = 0, .skipped = skipped, .shares = true, .heads = heads_});
    runner_.hooks().add(*this);
  }
  ~PersistenceMeter() override { runner_.hooks().remove(*this); }
  PersistenceMeter(const PersistenceMeter&) = delete;
  PersistenceMeter& operator=(const PersistenceMeter&) = delete;

  void queries(const AttentionInput& in) override {
    const int64_t slots = in.batch.spans.front().count;
    for (size_t i = 0; i < mass_.spans.size(); ++i) {
      uses_[i].assign(static_cast<size_t>(slots * heads_), 0);
      mass_.spans[i].mass = uses_[i];
    }
    observe_token_mass(in.batch, in.layer, in.kernels, runner_.threads(), in.kv, in.q, runner_.limits().context, mass_);
    const int64_t first = in.kv.layout().heads_before(in.layer.layer), heads = in.layer.kv_heads;
    if (!by_head_) return add(first, heads, layers_[static_cast<size_t>(in.layer.layer)]);
    for (int64_t head = first; head < first + heads; ++head) add(head, 1, layers_[static_cast<size_t>(head)]);
  }

  std::vector<LayerPersistence> layers() const { return layers_; }

 private:
  // Columns [first, first + heads) of what was observed.
  void add(int64_t first, int64_t heads, LayerPersistence& layer) {
    std::vector<int64_t> before(static_cast<size_t>(half_)), later(before);
    for (int64_t token = 0; token < half_; ++token) {
      for (int64_t head = first; head < first + heads; ++head) {
        const auto at = static_cast<size_t>(token * heads_ + head);
        const int64_t second = uses_[1][at], own = uses_[0][at] - second;
        layer.important += second > 0;
        layer.persistent += second > 0 && own > 0;
        before[static_cast<size_t>(token)] += own;
        later[static_cast<size_t>(token)] += second;
      }
    }
    // The order in which scissorhands keeps them.
    std::vector<int64_t> order(static_cast<size_t>(half_ - recent_));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::sort(order, [&](int64_t a, int64_t b) {
      return std::pair(before[static_cast<size_t>(a)], a) > std::pair(before[static_cast<size_t>(b)], b);
    });
    int64_t kept = std::accumulate(later.end() - recent_, later.end(), int64_t{0});
    layer.kept[0] += kept;
    for (size_t i = 0; i < order.size(); ++i) layer.kept[i + 1] += kept += later[static_cast<size_t>(order[i])];
  }

  ModelRunner& runner_;
  int64_t half_, recent_, heads_;
  bool by_head_;
  std::vector<LayerPersistence> layers_;
  TokenMass mass_;  // of the newest queries of the first half and the second one; of this alone
  std::array<std::vector<int64_t>, 2> uses_;  // [slots, heads of all layers], of each
};

Result<void> check_options(const ArchSpec& spec, int64_t tokens, const BudgetSearchOptions& options) {
  for (const LayerSpec& layer : spec.layers)
    if (options.heads && layer.kv_heads != spec.layers.front().kv_heads)
      return Error::unsupported(
          "budget-search: layers of this model differ in KV heads, so that heads have one budget");
  for (const LayerSpec& layer : spec.layers)
    if (layer.kv_heads < 1 || (layer.window > 0 && layer.window < options.context))
      return Error::unsupported(
          "budget-search: some layers of this model do not see every key, so that layers have one budget");
  MILLRACE_TRY_VOID(check_text_length(tokens, options.context));
  if (static_cast<double>(options.context / 2) * options.keep < static_cast<double>(options.recent + 1))
    return Error::user(
        fmt::format("keep: {} of {} tokens are no more than the newest {}; raise it or the context, or lower recent",
                    options.keep, options.context / 2, options.recent));
  return {};
}

}  // namespace

double LayerPersistence::ratio() const {
  return important > 0 ? static_cast<double>(persistent) / static_cast<double>(important) : 1;
}

double LayerPersistence::kept_share(int64_t older) const {
  if (kept.back() == 0) return 1;
  return static_cast<double>(kept[static_cast<size_t>(older)]) / static_cast<double>(kept.back());
}

std::vector<int64_t> divide_budget(std::span<const LayerPersistence> layers, int64_t average) {
  std::vector<int64_t> older(layers.size());
  for (int64_t left = average * std::ssize(layers); left > 0; --left) {
    size_t poorest = layers.size();
    for (size_t i = 0; i < layers.size(); ++i) {
      if (older[i] + 1 == std::ssize(layers[i].kept)) continue;
      if (poorest == layers.size() || layers[i].kept_share(older[i]) < layers[poorest].kept_share(older[poorest]))
        poorest = i;
    }
    if (poorest == layers.size()) break;
    ++older[poorest];
  }
  return older;
}

std::string FoundBudgets::text() const {
  std::string out;
  for (const int64_t one : older) out += fmt::format("{}{}", out.empty() ? "" : ".", std::max<int64_t>(1, one));
  return out;
}

Result<FoundBudgets> search_budgets(const std::shared_ptr<const LanguageModel>& model, std::span<const TokenId> tokens,
                                    const BudgetSearchOptions& options) {
  MILLRACE_TRY_VOID(check_options(model->parts().model->spec(), std::ssize(tokens), options));
  auto windows = chunk_windows(std::ssize(tokens), options.context);
  for (ScoreWindow& window : windows) window.first_scored = window.count;  // nothing is
  // So that a pass is a window, whose last token is no input.
  MILLRACE_TRY(const auto scorer, Scorer::create(model, {.threads = options.threads,
                                                         .context = options.context,
                                                         .batch_tokens = options.context - 1,
                                                         .kv_format = options.kv_format}));
  PersistenceMeter meter(scorer->runner(), options);
  MILLRACE_TRY_VOID(scorer->run(tokens, windows, -1, [](std::span<const ScoredRow>) { return Result<void>(); }));
  FoundBudgets out{.layers = meter.layers()};
  out.average = std::llround(options.keep * static_cast<double>(options.context / 2)) - options.recent;
  out.older = divide_budget(out.layers, out.average);
  return out;
}

}  // namespace millrace
