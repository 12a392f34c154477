#include "evaluate/centroid_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/patterns/hash_rotations.h"
#include "evaluate/scorer.h"
#include "evaluate/window_search.h"

namespace millrace {
namespace {

// Mean 0 and length 1; false: it has no direction.
bool normalize_key(std::span<const float> x, float* out) {
  double mean = 0, square = 0;
  for (float value : x) mean += static_cast<double>(value) / static_cast<double>(x.size());
  for (float value : x) square += (value - mean) * (value - mean);
  if (!(square > 0) || !std::isfinite(square)) return false;
  for (size_t d = 0; d < x.size(); ++d) out[d] = static_cast<float>((x[d] - mean) / std::sqrt(square));
  return true;
}

// Keeps the keys of evenly spaced tokens.
class KeyCollector final : public ForwardObserver {
 public:
  explicit KeyCollector(int64_t every) : every_(every) {}

  void queries(const AttentionInput& in) override {
    const AttentionLayer& layer = in.layer;
    heads_.resize(static_cast<size_t>(in.kv.layout().heads()));
    const RowCodec& codec = *in.kernels.find_codec(in.kv.layout().format);
    const int64_t dim = layer.head_dim, tokens = in.kv.layout().block_tokens;
    row_.resize(static_cast<size_t>(dim));
    for (const BatchSpan& span : in.batch.spans_of(layer.group))
      for (int64_t i = 0; i < span.count; ++i) {
        const int64_t slot = span.first_slot + i;
        if (slot % every_ != every_ - 1) continue;
        const BlockId block = in.batch.tables(layer.group)[static_cast<size_t>(span.table + slot / tokens)];
        for (int64_t h = 0; h < layer.kv_heads; ++h) {
          auto& to = heads_[static_cast<size_t>(in.kv.layout().heads_before(layer.layer) + h)];
          codec.decode(in.kv.keys(layer.layer, block, h) + slot % tokens * in.kv.row_bytes(layer.layer), row_.data(),
                       dim);
          to.resize(to.size() + row_.size());
          if (!normalize_key(row_, to.data() + to.size() - row_.size())) to.resize(to.size() - row_.size());
        }
      }
  }

  std::vector<std::vector<float>>& heads() { return heads_; }  // each [n, dims]

 private:
  int64_t every_;
  std::vector<std::vector<float>> heads_;
  std::vector<float> row_;
};

// Whose vector is nearest to none of the centroids so far.
std::vector<float> spread_directions(std::span<const float> vectors, int64_t dims, int64_t clusters) {
  const int64_t n = std::ssize(vectors) / dims;
  std::vector<float> out(vectors.begin(), vectors.begin() + dims);
  std::vector<float> nearest(static_cast<size_t>(n), -2);
  while (std::ssize(out) < clusters * dims) {
    for (int64_t i = 0; i < n; ++i) {
      float& near = nearest[static_cast<size_t>(i)];
      near = std::max(near, lane_product(out.data() + out.size() - dims,
                                         vectors.subspan(static_cast<size_t>(i * dims), static_cast<size_t>(dims))));
    }
    const int64_t farthest = std::ranges::min_element(nearest) - nearest.begin();
    out.insert(out.end(), vectors.begin() + farthest * dims, vectors.begin() + (farthest + 1) * dims);
  }
  return out;
}

}  // namespace

std::vector<float> cluster_directions(std::span<const float> vectors, int64_t dims, int64_t clusters, int rounds) {
  std::vector<float> centroids = spread_directions(vectors, dims, clusters);
  const auto size = static_cast<size_t>(dims);
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> sums(centroids.size());
    for (int64_t i = 0; i < std::ssize(vectors) / dims; ++i) {
      const float* x = vectors.data() + i * dims;
      int64_t best = 0;
      float most = -2;
      for (int64_t c = 0; c < clusters; ++c) {
        const float near = lane_product(centroids.data() + c * dims, {x, size});
        if (near > most) best = c;
        most = std::max(most, near);
      }
      for (int64_t d = 0; d < dims; ++d) sums[static_cast<size_t>(best * dims + d)] += x[d];
    }
    for (int64_t c = 0; c < clusters; ++c) {  // one without vectors stays where it is
      const double* sum = sums.data() + c * dims;
      double square = 0;
      for (size_t d = 0; d < size; ++d) square += sum[d] * sum[d];
      for (size_t d = 0; square > 0 && d < size; ++d)
        centroids[static_cast<size_t>(c) * size + d] = static_cast<float>(sum[d] / std::sqrt(square));
    }
  }
  return centroids;
}

Result<RoutingCentroids> fit_routing_centroids(const std::shared_ptr<const LanguageModel>& model,
                                               std::span<const TokenId> tokens, const CentroidFitOptions& options) {
  const ArchSpec& spec = model->parts().model->spec();
  MILLRACE_TRY_VOID(check_window_layers(spec, options.context, "centroids"));
  const int64_t dims = spec.layers.front().head_dim;
  for (const LayerSpec& layer : spec.layers)
    if (layer.head_dim != dims) return Error::unsupported("centroids: the heads of this model have different sizes");
  const auto windows = chunk_windows(std::ssize(tokens), options.context);
  const int64_t most = std::ssize(windows) * options.context;
  if (most < options.clusters)
    return Error::user(
        fmt::format("text: has {} tokens in whole windows of {}, too few for {} clusters; lower the "
                    "context or give a longer text",
                    most, options.context, options.clusters));
  MILLRACE_TRY(const auto scorer, Scorer::create(model, {.threads = options.threads, .context = options.context}));
  KeyCollector collector((most + options.keys - 1) / options.keys);
  ForwardHooks& hooks = scorer->runner().hooks();
  hooks.add(collector);
  const auto done = scorer->run(tokens, windows, -1, [](std::span<const ScoredRow>) { return Result<void>(); });
  hooks.remove(collector);
  MILLRACE_TRY_VOID(done);
  auto& heads = collector.heads();
  if (std::ranges::any_of(heads, [&](const auto& one) { return std::ssize(one) < options.clusters * dims; }))
    return Error::user("text: too few of its keys differ from their mean; give a longer text");
  scorer->runner().threads().parallel_for(std::ssize(heads), [&](int64_t h, int) {
    auto& vectors = heads[static_cast<size_t>(h)];
    vectors = cluster_directions(vectors, dims, options.clusters, options.rounds);
  });
  RoutingCentroids out{options.clusters, dims, {}};
  size_t next = 0;
  for (const LayerSpec& layer : spec.layers) {
    auto& to = out.layers.emplace_back();
    for (int64_t h = 0; h < layer.kv_heads; ++h, ++next) to.insert(to.end(), heads[next].begin(), heads[next].end());
  }
  return out;
}

}  // namespace millrace
