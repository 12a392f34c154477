// Marconi (Pan et al., 2024): admits copies that are likely to be reused, and evicts the one with the lowest utility.
// Reuse is expected at two places: where prompts branch, and at the end of a conversation so far. A copy at the end of
// a prompt is therefore dropped when the answer behind it has one.
//
//   utility = recency + alpha x (tokens that a hit saves per byte), both scaled to [0, 1] over all copies
//
// All copies have the same bytes. Copies that several stored paths continue are evicted last, as in the paper.
#include <algorithm>

#include "kv/state_evictors/factories.h"

namespace millrace {
namespace {

class MarconiStates final : public StateEvictor {
 public:
  explicit MarconiStates(double alpha) : alpha_(alpha) {}
  bool keeps(StatePlace place, int64_t) const override { return place == StatePlace::branch; }

  size_t victim(std::span<const StateUse> held) const override {
    const auto [oldest, newest] = std::ranges::minmax(held, {}, &StateUse::last_use);
    const auto [least, most] = std::ranges::minmax(held, {}, &StateUse::saved);
    const auto scaled = [](int64_t value, int64_t low, int64_t high) {
      return high > low ? static_cast<double>(value - low) / static_cast<double>(high - low) : 0.0;
    };
    const auto rank = [&](const StateUse& use) {
      const double utility =
          scaled(use.last_use, oldest.last_use, newest.last_use) + alpha_ * scaled(use.saved, least.saved, most.saved);
      return std::pair(use.paths > 1, utility);
    };
    return static_cast<size_t>(std::ranges::min_element(held, {}, rank) - held.begin());
  }

 private:
  double alpha_;
};

}  // namespace

std::unique_ptr<StateEvictor> make_marconi_states(const OptionValues& options) {
  return std::make_unique<MarconiStates>(options.number("alpha"));
}

}  // namespace millrace
