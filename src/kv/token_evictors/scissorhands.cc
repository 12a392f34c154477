// Scissorhands: keeps the newest tokens and, of the older ones, those that most queries of a history window found
// important, which is to pay them at least an even share of their attention. One choice for all layers and heads; in
// the paper every head chooses.
//
// In the paper layers have budgets of their own, because important tokens remain important for less long in the last
// ones. With `layers` they do here, and each layer chooses.
#include <fmt/format.h>

#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/layer_shares.h"
#include "kv/token_evictors/lowest.h"

namespace millrace {
namespace {

class Scissorhands : public TokenEvictor {
 public:
  Scissorhands(int64_t budget, int64_t recent, int64_t history) : budget_(budget), recent_(recent), history_(history) {}
  int64_t budget() const override { return budget_; }
  MassRule mass_rule() const override { return {.queries = history_, .shares = true}; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    const auto uses = [&](int32_t slot) { return stored.mass[static_cast<size_t>(slot)]; };
    drop_lowest(std::ssize(stored.positions) - recent_, excess, uses, slots);
  }

 private:
  int64_t budget_, recent_, history_;
};

class LayeredScissorhands final : public Scissorhands {
 public:
  LayeredScissorhands(int64_t budget, int64_t recent, int64_t history, const std::vector<int64_t>& shares)
      : Scissorhands(budget, recent, history),
        budgets_(budgets_by_share(shares, budget, std::max<int64_t>(1, recent))) {}
  bool by_layer() const override { return true; }
  int64_t budget_of(int64_t layer, int64_t /*layers*/) const override {
    return budgets_[static_cast<size_t>(std::min(layer, std::ssize(budgets_) - 1))];
  }
  Result<void> check_layers(int64_t layers) const override {
    if (layers == std::ssize(budgets_)) return {};
    return Error::user(
        fmt::format("evictor scissorhands: layers: has shares of {} layers, the model has {}; millrace budget-search "
                    "finds those of a model",
                    budgets_.size(), layers));
  }

 private:
  std::vector<int64_t> budgets_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_scissorhands(const OptionValues& options) {
  const int64_t budget = options.integer("budget"), recent = std::min(budget, options.integer("recent")),
                history = options.integer("history");
  const std::string& layers = options.text("layers");
  if (layers.empty())
    return std::unique_ptr<const TokenEvictor>(std::make_unique<Scissorhands>(budget, recent, history));
  const auto shares = read_layer_shares(layers);
  if (!shares.ok()) return Error::user("evictor scissorhands: layers: " + shares.error().message);
  return std::unique_ptr<const TokenEvictor>(std::make_unique<LayeredScissorhands>(budget, recent, history, *shares));
}

}  // namespace millrace
