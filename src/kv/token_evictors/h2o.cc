// H2O: keeps the newest tokens and, of the older ones, the heavy hitters: those that have received most attention from
// all queries since they were stored. In the paper every head chooses, by sums. Here every layer chooses by default, by
// means over these queries: sums grow with age, whatever a token is worth
// (docs/decisions/0058-h2o-by-layer-and-mean.md).
#include <fmt/format.h>

#include "base/enum_table.h"
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/layer_shares.h"
#include "kv/token_evictors/lowest.h"
#include "kv/token_evictors/recent.h"

namespace millrace {
namespace {

enum class HitterWorth : uint8_t { sum, mean };
constexpr EnumNames<HitterWorth> kHitterWorths("sum", "mean");

class H2o final : public TokenEvictor {
 public:
  H2o(int64_t budget, int64_t recent, HitterWorth worth) : budget_(budget), recent_(recent), worth_(worth) {}
  int64_t budget() const override { return budget_; }
  MassRule mass_rule() const override { return {.queries = MassRule::kAll}; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    const int64_t old = std::ssize(stored.positions) - recent_;
    const auto sum = [&](int32_t slot) { return stored.mass[static_cast<size_t>(slot)]; };
    // Of the token's own query and all since, as far as they were observed.
    const auto mean = [&](int32_t slot) {
      const int32_t first = std::max(stored.first_query, stored.positions[static_cast<size_t>(slot)]);
      const int64_t queries = int64_t{stored.positions.back()} - first + 1;
      return static_cast<double>(sum(slot)) / static_cast<double>(queries);
    };
    if (worth_ == HitterWorth::sum)
      drop_lowest(old, excess, sum, slots);
    else
      drop_lowest(old, excess, mean, slots);
  }

 private:
  int64_t budget_, recent_;
  HitterWorth worth_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_h2o(const OptionValues& options) {
  const int64_t budget = options.integer("budget");
  MILLRACE_TRY(int64_t recent, read_recent("h2o", options, budget, true));
  recent = std::min(budget, recent);
  const std::string& worth = options.text("worth");
  const auto found = kHitterWorths.find(worth);
  if (!found) return Error::user(fmt::format("evictor h2o: worth: must be sum or mean, got '{}'", worth));
  return with_shares("h2o", options, std::make_unique<H2o>(budget, recent, *found), recent);
}

}  // namespace millrace
