// H2O: keeps the newest tokens and, of the older ones, the heavy hitters: those that have received most attention from
// all queries since they were stored. One choice for all layers and heads; in the paper every head chooses for itself.
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/layer_shares.h"
#include "kv/token_evictors/lowest.h"

namespace millrace {
namespace {

class H2o final : public TokenEvictor {
 public:
  H2o(int64_t budget, int64_t recent) : budget_(budget), recent_(recent) {}
  int64_t budget() const override { return budget_; }
  MassRule mass_rule() const override { return {.queries = MassRule::kAll}; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    const auto mass = [&](int32_t slot) { return stored.mass[static_cast<size_t>(slot)]; };
    drop_lowest(std::ssize(stored.positions) - recent_, excess, mass, slots);
  }

 private:
  int64_t budget_, recent_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_h2o(const OptionValues& options) {
  const int64_t budget = options.integer("budget");
  const auto recent = static_cast<int64_t>(static_cast<double>(budget) * options.number("recent"));
  return with_shares("h2o", options, std::make_unique<H2o>(budget, recent), recent);
}

}  // namespace millrace
