// The placement is the best of all choices, which small cases try one by one.
#include "models/neurons/neuron_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace millrace {
namespace {

using Layers = std::vector<std::vector<uint32_t>>;

NeuronPlacement placed(const Layers& layers, int64_t capacity, int64_t group, int64_t least) {
  std::vector<std::span<const uint32_t>> views(layers.begin(), layers.end());
  return place_neurons(views, capacity, group, least);
}

int64_t uses_of(const Layers& layers, const NeuronPlacement& placement) {
  int64_t uses = 0;
  for (size_t l = 0; l < layers.size(); ++l)
    for (int32_t n : placement.hot[l]) uses += layers[l][static_cast<size_t>(n)];
  return uses;
}

// The most uses of any choice of neurons, one at a time, with the same bounds.
int64_t best_uses(Layers layers, int64_t capacity, int64_t least) {
  for (auto& layer : layers) std::ranges::sort(layer, std::ranges::greater{});
  int64_t best = 0;
  std::vector<int64_t> counts(layers.size());
  std::function<void(size_t, int64_t, int64_t)> choose = [&](size_t l, int64_t left, int64_t uses) {
    if (l == layers.size()) {
      best = std::max(best, uses);
      return;
    }
    const auto size = std::ssize(layers[l]);
    for (int64_t n = 0; n <= std::min(left, size); ++n)
      if (n == 0 || n >= std::min(least, size))
        choose(l + 1, left - n, uses + std::accumulate(layers[l].begin(), layers[l].begin() + n, int64_t{0}));
  };
  choose(0, capacity, 0);
  return best;
}

TEST(NeuronPlacement, IsTheBestOfAllChoices) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    Layers layers(1 + random() % 4);
    for (auto& layer : layers) {
      layer.resize(8);
      for (uint32_t& uses : layer) uses = static_cast<uint32_t>(random() % 50);
    }
    for (const int64_t least : {0, 3, 6}) {
      const auto capacity = static_cast<int64_t>(random() % (8 * layers.size() + 2));
      const NeuronPlacement placement = placed(layers, capacity, 1, least);
      int64_t neurons = 0;
      for (const auto& hot : placement.hot) {
        neurons += std::ssize(hot);
        EXPECT_TRUE(hot.empty() || std::ssize(hot) >= least);
        EXPECT_TRUE(std::ranges::is_sorted(hot));
      }
      EXPECT_LE(neurons, capacity);
      EXPECT_EQ(uses_of(layers, placement), best_uses(layers, capacity, least)) << capacity << " " << least;
    }
  }
}

TEST(NeuronPlacement, GroupsStayTogether) {
  const Layers layers = {{9, 1, 8, 2, 7, 3}, {5, 5, 5, 5, 5, 4}};
  const NeuronPlacement some = placed(layers, 5, 2, 0);
  // 17 uses of two neurons, then 10 of two, which both layers have: the first layer's.
  EXPECT_EQ(some.hot[0], (std::vector<int32_t>{0, 2, 4, 5}));
  EXPECT_TRUE(some.hot[1].empty());
  const NeuronPlacement all = placed(layers, 1000, 4, 0);
  EXPECT_EQ(all.hot[0].size(), 6u);
  EXPECT_EQ(all.hot[1].size(), 6u);
  EXPECT_EQ(all.share, 1.0);
  EXPECT_EQ(placed(layers, 0, 4, 0).share, 0.0);
}

}  // namespace
}  // namespace millrace
