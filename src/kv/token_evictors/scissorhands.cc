// Scissorhands: keeps the newest tokens and, of the older ones, those that most queries of a history window found
// important, which is to pay them at least an even share of their attention. One choice for all layers and heads; in
// the paper every head chooses.
//
// In the paper layers have budgets of their own, because important tokens remain important for less long in the last
// ones. With `layers` they do here, and each layer chooses; with `heads` each KV head of each layer.
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/layer_shares.h"
#include "kv/token_evictors/lowest.h"
#include "kv/token_evictors/recent.h"

namespace millrace {
namespace {

class Scissorhands final : public TokenEvictor {
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

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_scissorhands(const OptionValues& options) {
  const int64_t budget = options.integer("budget"), history = options.integer("history");
  MILLRACE_TRY(int64_t recent, read_recent("scissorhands", options, budget));
  recent = std::min(budget, recent);
  return with_shares("scissorhands", options, std::make_unique<Scissorhands>(budget, recent, history), recent);
}

}  // namespace millrace
