// The choice of SnapKV (Li et al., 2024), which evictors with budgets by layer share: the newest tokens are kept, and
// their queries vote for the older ones. A token's vote is the highest in its neighborhood, so that its neighbours stay
// with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kv/token_evictor.h"
#include "kv/token_evictors/lowest.h"

namespace millrace {

// Appends, ascending, the `excess` slots with the fewest votes, none of the newest `window`. `reach`: neighbors on each
// side.
inline void drop_by_votes(const StoredTokens& stored, int64_t excess, int64_t window, int64_t reach,
                          std::vector<int32_t>& slots) {
  const int64_t count = std::ssize(stored.positions), old = count - std::min(window, count - excess);
  const auto vote = [&](int32_t slot) {
    const int64_t begin = std::max<int64_t>(0, slot - reach), end = std::min(old, slot + reach + 1);
    return *std::max_element(stored.mass.begin() + begin, stored.mass.begin() + end);
  };
  drop_lowest(old, excess, vote, slots);
}

}  // namespace millrace
