#include "models/weight_units/expert_pairs.h"

#include <algorithm>
#include <numeric>

namespace millrace {

ExpertPairs::ExpertPairs(std::vector<size_t> experts) : experts_(std::move(experts)) {
  for (size_t i = 0; i + 1 < experts_.size(); ++i) counts_.emplace_back(experts_[i] * experts_[i + 1]);
}

int64_t ExpertPairs::bytes(const std::vector<size_t>& experts) {
  size_t counts = 0;
  for (size_t i = 0; i + 1 < experts.size(); ++i) counts += experts[i] * experts[i + 1];
  return static_cast<int64_t>(counts * sizeof(uint32_t));
}

void ExpertPairs::observe(int64_t layer, std::span<const int32_t> chosen) {
  if (layer == last_layer_ && chosen.size() < last_.size() &&
      std::equal(chosen.rbegin(), chosen.rend(), last_.rbegin()))
    return;
  if (layer == last_layer_ + 1) {
    auto& counts = counts_[static_cast<size_t>(last_layer_)];
    const size_t width = experts_[static_cast<size_t>(layer)];
    for (int32_t from : last_)
      for (int32_t to : chosen) ++counts[static_cast<size_t>(from) * width + static_cast<size_t>(to)];
  }
  last_layer_ = layer;
  last_.assign(chosen.begin(), chosen.end());
}

std::vector<int32_t> ExpertPairs::guess(int64_t layer, std::span<const int32_t> chosen, size_t count) const {
  if (layer + 1 >= std::ssize(experts_)) return {};
  const size_t width = experts_[static_cast<size_t>(layer) + 1];
  std::vector<uint64_t> sums(width);
  for (int32_t from : chosen)
    for (size_t to = 0; to < width; ++to)
      sums[to] += counts_[static_cast<size_t>(layer)][static_cast<size_t>(from) * width + to];
  std::vector<int32_t> order(width);
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, width);
  std::ranges::partial_sort(order, order.begin() + static_cast<ptrdiff_t>(count), [&](int32_t a, int32_t b) {
    return std::pair(sums[static_cast<size_t>(b)], a) < std::pair(sums[static_cast<size_t>(a)], b);
  });
  order.resize(count);
  std::erase_if(order, [&](int32_t one) { return sums[static_cast<size_t>(one)] == 0; });
  return order;
}

}  // namespace millrace
