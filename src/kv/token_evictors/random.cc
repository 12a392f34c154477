// Random eviction: keeps the newest tokens and, of the older ones, a uniform sample. Each position draws its priority
// once, so a token's chance does not depend on the number of decisions (reservoir sampling). The baseline that every
// evictor that looks at attention has to beat.
#include "base/philox.h"
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/lowest.h"
#include "kv/token_evictors/recent.h"

namespace millrace {
namespace {

class Random final : public TokenEvictor {
 public:
  Random(int64_t budget, int64_t recent, uint64_t seed) : budget_(budget), recent_(recent), seed_(seed) {}
  int64_t budget() const override { return budget_; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    const auto priority = [&](int32_t slot) {
      return philox_uniform(seed_, 0, static_cast<uint64_t>(stored.positions[static_cast<size_t>(slot)]));
    };
    drop_lowest(std::ssize(stored.positions) - recent_, excess, priority, slots);
  }

 private:
  int64_t budget_, recent_;
  uint64_t seed_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_random(const OptionValues& options) {
  const int64_t budget = options.integer("budget");
  MILLRACE_TRY(int64_t recent, read_recent("random", options, budget, true));
  recent = std::min(budget, recent);
  return std::unique_ptr<const TokenEvictor>(
      std::make_unique<Random>(budget, recent, static_cast<uint64_t>(options.integer("seed"))));
}

}  // namespace millrace
