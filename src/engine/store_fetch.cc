#include "engine/store_fetch.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace millrace {

std::vector<size_t> choose_blocks(const PrefixStore& store, const LiveStream& stream, std::span<const ChainLink> found,
                                  double fetch) {
  std::vector<size_t> chosen(found.size());
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  if (fetch >= 1 || stream.answers || stream.beams || found.size() < 3) return chosen;
  const auto count =
      std::clamp<size_t>(static_cast<size_t>(std::ceil(fetch * static_cast<double>(found.size()))), 2, found.size());
  std::vector<float> importance;
  for (const ChainLink& link : found) {
    const float seen = store.importance(link);
    importance.push_back(seen > 0 ? seen : 1.0f);  // unknown: an even share
  }
  importance.front() = importance.back() = std::numeric_limits<float>::infinity();
  std::ranges::stable_sort(chosen, std::greater<>(), [&](size_t i) { return importance[i]; });
  chosen.resize(count);
  std::ranges::sort(chosen);
  return chosen;
}

void take_importance(const PrefixStore& store, LiveStream& stream, size_t first, std::span<const ChainLink> blocks) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const float seen = store.importance(blocks[i]);
    if (!(seen > 0)) continue;
    if (stream.importance.size() <= first + i) stream.importance.resize(first + i + 1);
    stream.importance[first + i] = std::max(stream.importance[first + i], seen);
  }
}

}  // namespace millrace
