// The choice that evictors by value share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace millrace {

// Appends the `excess` slots with the lowest value(slot) among the first `old` slots, in ascending order. Among equal
// values the older slot is dropped. excess <= old. Allocates nothing if `slots` has room for `old` more.
template <typename Value>
void drop_lowest(int64_t old, int64_t excess, const Value& value, std::vector<int32_t>& slots) {
  const size_t begin = slots.size();
  for (int32_t slot = 0; slot < old; ++slot) slots.push_back(slot);
  const auto first = slots.begin() + static_cast<ptrdiff_t>(begin);
  std::nth_element(first, first + (excess - 1), slots.end(), [&](int32_t a, int32_t b) {
    const auto value_a = value(a), value_b = value(b);
    return value_a != value_b ? value_a < value_b : a < b;
  });
  slots.resize(begin + static_cast<size_t>(excess));
  std::sort(slots.begin() + static_cast<ptrdiff_t>(begin), slots.end());
}

}  // namespace millrace
