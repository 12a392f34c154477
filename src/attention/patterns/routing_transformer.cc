// Routing Transformer (Roy et al., 2020): spherical k-means. Queries and keys, normalized to mean 0 and length 1,
// belong to the nearest of k centroids, and a query attends to the keys of its own cluster. The paper learns centroids
// while it trains, and gives each cluster its w nearest tokens; here centroids are random unit vectors, as the paper's
// begin, and a query sees the blocks that have the most keys of its cluster.
#include "attention/patterns/choosing_pattern.h"
#include "attention/patterns/hash_rotations.h"

namespace millrace {
namespace {

class RoutingTransformer final : public ChoosingPattern {
 public:
  explicit RoutingTransformer(const OptionValues& options)
      : ChoosingPattern(options),
        clusters_(options.integer("clusters")),
        directions_(clusters_, static_cast<uint64_t>(options.integer("seed"))) {
    for (int64_t c = 0; c < clusters_; ++c) {
      double square = 0;
      for (float x : directions_.direction(c)) lengths_.push_back(static_cast<float>(std::sqrt(square += x * x)));
    }
  }

  int64_t summary_floats(int64_t) const override { return clusters_; }
  void add_key(const PatternPlace&, std::span<const float> key, std::span<float> summary) const override {
    summary[nearest(key)] += 1;
  }
  void add_query(const PatternPlace&, std::span<const float> query, std::span<float> features) const override {
    features[nearest(query)] += 1;
  }

 private:
  // Of x - mean(x), whose length does not matter.
  size_t nearest(std::span<const float> x) const {
    std::array<float, kMostDynamicDim> centered;
    float mean = 0;
    for (float value : x) mean += value;
    mean /= static_cast<float>(x.size());
    float best_product = 0;
    size_t best = 0;
    for (size_t d = 0; d < x.size(); ++d) centered[d] = x[d] - mean;
    for (int64_t c = 0; c < clusters_; ++c) {
      const float length = lengths_[static_cast<size_t>(c * kMostDynamicDim) + x.size() - 1];
      const float product = directions_.product(c, {centered.data(), x.size()}) / length;
      if (c > 0 && !(product > best_product)) continue;
      best_product = product;
      best = static_cast<size_t>(c);
    }
    return best;
  }

  int64_t clusters_;
  RandomDirections directions_;
  std::vector<float> lengths_;  // [clusters, dims]: of a centroid's first dims
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_routing_transformer(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<RoutingTransformer>(options));
}

}  // namespace millrace
