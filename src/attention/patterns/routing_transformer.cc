// Routing Transformer (Roy et al., 2020): spherical k-means. Queries and keys, normalized to mean 0 and length 1,
// belong to the nearest of k centroids, and a query attends to the keys of its own cluster. The paper gives each
// cluster its w nearest tokens; here a query sees the blocks that have the most keys of its cluster.
//
// The paper learns the centroids of each head while it trains. Here `millrace centroids` fits them to a trained model
// (evaluate/centroid_fit.h), and `centroids` is the file; without one they are random unit vectors, as the paper's
// begin, the same for every head.
#include <optional>

#include "attention/fitted_pattern.h"
#include "attention/patterns/choosing_pattern.h"
#include "attention/patterns/hash_rotations.h"
#include "attention/patterns/routing_centroids.h"

namespace millrace {
namespace {

using CenteredVector = std::array<float, kMaxDynamicDim>;

// x - mean(x), whose length does not matter to which centroid is nearest.
void center(std::span<const float> x, CenteredVector& out) {
  float mean = 0;
  for (float value : x) mean += value;
  mean /= static_cast<float>(x.size());
  for (size_t d = 0; d < x.size(); ++d) out[d] = x[d] - mean;
}

template <typename Product>
size_t largest(int64_t clusters, Product product) {
  float most = 0;
  size_t best = 0;
  for (int64_t c = 0; c < clusters; ++c) {
    const float value = product(c);
    if (c > 0 && !(value > most)) continue;
    most = value;
    best = static_cast<size_t>(c);
  }
  return best;
}

class RandomRouting final : public ChoosingPattern {
 public:
  explicit RandomRouting(const OptionValues& options)
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
  size_t nearest(std::span<const float> x) const {
    CenteredVector centered;
    center(x, centered);
    return largest(clusters_, [&](int64_t c) {
      const float length = lengths_[static_cast<size_t>(c * kMaxDynamicDim) + x.size() - 1];
      return directions_.product(c, {centered.data(), x.size()}) / length;
    });
  }

  int64_t clusters_;
  RandomDirections directions_;
  std::vector<float> lengths_;  // [clusters, dims]: of a centroid's first dims
};

class FittedRouting final : public ChoosingPattern, public FittedPattern {
 public:
  FittedRouting(const OptionValues& options, RoutingCentroids centroids)
      : ChoosingPattern(options), centroids_(std::move(centroids)) {}

  int64_t summary_floats(int64_t) const override { return centroids_.clusters; }
  void add_key(const PatternPlace& at, std::span<const float> key, std::span<float> summary) const override {
    summary[nearest_centroid(at, key)] += 1;
  }
  void add_query(const PatternPlace& at, std::span<const float> query, std::span<float> features) const override {
    features[nearest_centroid(at, query)] += 1;
  }

  Result<void> check_layers(std::span<const KvLayer> layers) const override {
    bool fits = layers.size() == centroids_.layers.size();
    for (size_t i = 0; fits && i < layers.size(); ++i)
      fits = layers[i].kv_heads == 0 ||
             (layers[i].kv_heads == centroids_.heads(static_cast<int64_t>(i)) && layers[i].head_dim == centroids_.dims);
    if (fits) return {};
    return Error::user(
        "centroids: were fitted to a model with other layers or heads; run millrace centroids with this one");
  }
  std::string digest() const override { return centroids_.digest(); }

 private:
  size_t nearest_centroid(const PatternPlace& at, std::span<const float> x) const {
    CenteredVector centered;
    center(x, centered);
    const float* rows = centroids_.of(at.layer, at.head);
    return largest(centroids_.clusters, [&](int64_t c) {
      return lane_product(rows + c * centroids_.dims, {centered.data(), x.size()});
    });
  }

  RoutingCentroids centroids_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_routing_transformer(const OptionValues& options) {
  const std::string& path = options.text("centroids");
  if (path.empty()) return std::unique_ptr<AttentionPattern>(std::make_unique<RandomRouting>(options));
  if (options.given("clusters") || options.given("seed"))
    return Error::user(
        "centroids: the file says how many clusters there are, and nothing is random; omit clusters and seed");
  MILLRACE_TRY(auto centroids, read_routing_centroids(path));
  return std::unique_ptr<AttentionPattern>(std::make_unique<FittedRouting>(options, std::move(centroids)));
}

}  // namespace millrace
