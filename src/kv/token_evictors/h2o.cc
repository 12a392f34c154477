// H2O: keeps the newest tokens and, of the older ones, the heavy hitters: those that have received most attention from
// all queries since they were stored. One choice for all layers and heads; in the paper every head chooses for itself.
#include <algorithm>

#include "kv/token_evictors/factories.h"

namespace millrace {
namespace {

class H2o final : public TokenEvictor {
 public:
  H2o(int64_t budget, int64_t recent) : budget_(budget), recent_(recent) {}
  int64_t budget() const override { return budget_; }
  bool needs_mass() const override { return true; }
  // Of equal sums, the older token is dropped.
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    const size_t begin = slots.size();
    const int64_t old = std::ssize(stored.positions) - recent_;
    for (int32_t slot = 0; slot < old; ++slot) slots.push_back(slot);
    const auto first = slots.begin() + static_cast<ptrdiff_t>(begin);
    std::nth_element(first, first + (excess - 1), slots.end(), [&](int32_t a, int32_t b) {
      const int64_t mass_a = stored.mass[static_cast<size_t>(a)], mass_b = stored.mass[static_cast<size_t>(b)];
      return mass_a != mass_b ? mass_a < mass_b : a < b;
    });
    slots.resize(begin + static_cast<size_t>(excess));
    std::sort(slots.begin() + static_cast<ptrdiff_t>(begin), slots.end());
  }

 private:
  int64_t budget_, recent_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_h2o(const OptionValues& options) {
  const int64_t budget = options.integer("budget");
  const auto recent = static_cast<int64_t>(static_cast<double>(budget) * options.number("recent"));
  return std::unique_ptr<const TokenEvictor>(std::make_unique<H2o>(budget, recent));
}

}  // namespace millrace
