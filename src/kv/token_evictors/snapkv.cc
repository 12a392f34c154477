// SnapKV: keeps an observation window of the newest tokens and, of the older ones, those to which its queries pay most
// attention, with their neighbors. One choice for all layers and heads, repeated while the answer grows; in the paper
// every head chooses once, after the prompt.
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/layer_shares.h"
#include "kv/token_evictors/window_votes.h"

namespace millrace {
namespace {

class SnapKv final : public TokenEvictor {
 public:
  SnapKv(int64_t budget, int64_t window, int64_t kernel) : budget_(budget), window_(window), reach_(kernel / 2) {}
  int64_t budget() const override { return budget_; }
  MassRule mass_rule() const override { return {.queries = window_}; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    drop_by_votes(stored, excess, window_, reach_, slots);
  }

 private:
  int64_t budget_, window_, reach_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_snapkv(const OptionValues& options) {
  const int64_t window = options.integer("window");
  return with_shares("snapkv", options,
                     std::make_unique<SnapKv>(options.integer("budget"), window, options.integer("kernel")), window);
}

}  // namespace millrace
