// SnapKV: keeps an observation window of the newest tokens and, of the older ones, those to which its queries pay most
// attention. A token's vote is the highest in its neighborhood, so that what it belongs to stays with it. One choice
// for all layers and heads, repeated while the answer grows; in the paper every head chooses once, after the prompt.
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/lowest.h"

namespace millrace {
namespace {

class SnapKv final : public TokenEvictor {
 public:
  SnapKv(int64_t budget, int64_t window, int64_t kernel) : budget_(budget), window_(window), reach_(kernel / 2) {}
  int64_t budget() const override { return budget_; }
  MassRule mass_rule() const override { return {.queries = window_}; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    const int64_t old = std::ssize(stored.positions) - std::min(window_, budget_);
    const auto vote = [&](int32_t slot) {
      const int64_t begin = std::max<int64_t>(0, slot - reach_), end = std::min(old, slot + reach_ + 1);
      return *std::max_element(stored.mass.begin() + begin, stored.mass.begin() + end);
    };
    drop_lowest(old, excess, vote, slots);
  }

 private:
  int64_t budget_, window_, reach_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_snapkv(const OptionValues& options) {
  return std::unique_ptr<const TokenEvictor>(
      std::make_unique<SnapKv>(options.integer("budget"), options.integer("window"), options.integer("kernel")));
}

}  // namespace millrace
