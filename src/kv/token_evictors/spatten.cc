// SpAtten (Wang et al., 2021): cascade token pruning. A token is worth the attention that it has received from all
// queries, heads and layers so far; each layer keeps fewer of the most attended than the one before, and what a layer
// drops all later ones drop too (kv/token_cascade.h). The newest tokens are kept, which the paper does not do: sums of
// all queries favor what has been there for long. Heads are pruned likewise (kv/head_cascade.h). The paper's
// progressive quantization is a KV format (kv/row_residuals.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/layer_budgets.h"
#include "kv/token_evictors/lowest.h"
#include "kv/token_evictors/recent.h"

namespace millrace {
namespace {

class SpAtten final : public TokenEvictor {
 public:
  SpAtten(int64_t keep, int64_t last, int64_t recent, double heads)
      : keep_(keep), last_(last), recent_(recent), heads_(heads) {}
  int64_t budget() const override { return (keep_ + last_) / 2; }
  bool by_layer() const override { return true; }
  int64_t budget_of(int64_t layer, int64_t layers) const override { return on_line(keep_, last_, layer, layers); }
  bool cascades() const override { return true; }
  bool prunes_heads() const override { return heads_ < 1; }
  int64_t heads_of(int64_t layer, int64_t layers, int64_t heads) const override {
    const auto last = std::llround(heads_ * static_cast<double>(heads));
    return on_line(heads, std::clamp<int64_t>(last, 1, heads), layer, layers);
  }
  MassRule mass_rule() const override { return {.queries = MassRule::kAll}; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    const int64_t count = std::ssize(stored.positions);
    const auto worth = [&](int32_t slot) { return stored.mass[static_cast<size_t>(slot)]; };
    drop_lowest(count - std::min(recent_, count - excess), excess, worth, slots);
  }

 private:
  int64_t keep_, last_, recent_;
  double heads_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_spatten(const OptionValues& options) {
  const int64_t keep = options.integer("keep"), last = options.integer("final");
  if (last > keep)
    return Error::user(fmt::format("evictor spatten: final: must be at most keep, {}, got {}", keep, last));
  MILLRACE_TRY(const int64_t recent, read_recent("spatten", options, last));
  return std::unique_ptr<const TokenEvictor>(std::make_unique<SpAtten>(keep, last, recent, options.number("heads")));
}

}  // namespace millrace
