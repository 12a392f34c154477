#include "models/neurons/neuron_placement.h"

#include <algorithm>
#include <numeric>
#include <queue>

namespace millrace {
namespace {

// A layer's neurons, the most frequent first; of equal ones the lower index.
std::vector<int32_t> ranked(std::span<const uint32_t> active) {
  std::vector<int32_t> order(active.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](int32_t n) { return active[static_cast<size_t>(n)]; });
  return order;
}

struct RankedLayer {
  std::vector<int32_t> order;
  std::vector<double> gain;  // of the first n groups, n from 0 on
};

RankedLayer rank_layer(std::span<const uint32_t> active, int64_t group) {
  RankedLayer out{.order = ranked(active), .gain = {0}};
  for (int64_t first = 0; first < std::ssize(active); first += group) {
    double sum = out.gain.back();
    for (int64_t i = first; i < std::min(std::ssize(active), first + group); ++i)
      sum += active[static_cast<size_t>(out.order[static_cast<size_t>(i)])];
    out.gain.push_back(sum);
  }
  return out;
}

// Optimal if every layer's gains fall.
std::vector<int64_t> most_frequent_first(const std::vector<RankedLayer>& layers, int64_t groups) {
  std::vector<int64_t> counts(layers.size(), 0);
  using Next = std::pair<double, int64_t>;  // gain of a layer's next group, -layer
  std::priority_queue<Next> next;
  const auto push = [&](size_t l) {
    const auto n = static_cast<size_t>(counts[l]);
    if (n + 1 < layers[l].gain.size()) next.push({layers[l].gain[n + 1] - layers[l].gain[n], -static_cast<int64_t>(l)});
  };
  for (size_t l = 0; l < layers.size(); ++l) push(l);
  for (; groups > 0 && !next.empty(); --groups) {
    const auto l = static_cast<size_t>(-next.top().second);
    next.pop();
    ++counts[l];
    push(l);
  }
  return counts;
}

// best[g]: the largest gain of the layers so far with at most g groups.
std::vector<int64_t> best_counts(const std::vector<RankedLayer>& layers, int64_t groups, int64_t least) {
  std::vector<double> best(static_cast<size_t>(groups) + 1, 0.0);
  std::vector<std::vector<int32_t>> chosen;
  for (const RankedLayer& layer : layers) {
    const std::vector<double> before = best;
    std::vector<int32_t>& own = chosen.emplace_back(best.size(), 0);
    const int64_t most = std::ssize(layer.gain) - 1;
    for (int64_t g = 0; g <= groups; ++g)
      for (int64_t n = std::min(least, most); n <= std::min(most, g); ++n)
        if (const double gain = before[static_cast<size_t>(g - n)] + layer.gain[static_cast<size_t>(n)];
            gain > best[static_cast<size_t>(g)]) {
          best[static_cast<size_t>(g)] = gain;
          own[static_cast<size_t>(g)] = static_cast<int32_t>(n);
        }
  }
  std::vector<int64_t> counts(layers.size());
  for (size_t l = layers.size(); l-- > 0;) {
    counts[l] = chosen[l][static_cast<size_t>(groups)];
    groups -= counts[l];
  }
  return counts;
}

}  // namespace

NeuronPlacement place_neurons(std::span<const std::span<const uint32_t>> active, int64_t capacity, int64_t group,
                              int64_t least) {
  std::vector<RankedLayer> layers;
  int64_t all = 0;
  for (const auto& one : active) {
    layers.push_back(rank_layer(one, group));
    all += std::ssize(layers.back().gain) - 1;
  }
  const int64_t groups = std::min(all, capacity / group);
  const int64_t least_groups = (least + group - 1) / group;
  const std::vector<int64_t> counts = least_groups <= 1 || groups == all ? most_frequent_first(layers, groups)
                                                                         : best_counts(layers, groups, least_groups);
  NeuronPlacement out;
  double uses = 0, hot_uses = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    const int64_t count = std::min<int64_t>(counts[l] * group, std::ssize(layers[l].order));
    std::vector<int32_t>& hot = out.hot.emplace_back(layers[l].order.begin(), layers[l].order.begin() + count);
    std::ranges::sort(hot);
    uses += layers[l].gain.back();
    hot_uses += layers[l].gain[static_cast<size_t>(counts[l])];
  }
  out.share = uses > 0 ? hot_uses / uses : 0;
  return out;
}

}  // namespace millrace
