// Fits the centroids of the attention pattern routing_transformer to a model (Roy et al., 2020, section 4.1): k-means
// of the keys of each KV head on a text, normalized as the pattern does it. The paper moves centroids while it trains,
// by a moving average of the vectors that are nearest to each; here all of them are at hand, and whole rounds of
// k-means (Lloyd, 1982) end where that average does.
//
// The paper averages queries and keys, which its models share. Elsewhere the two lie apart, and centroids between them
// fit neither: they keep less of the attention than those of the keys alone.
#pragma once

#include <memory>
#include <span>

#include "attention/patterns/routing_centroids.h"
#include "run/language_model.h"

namespace millrace {

struct CentroidFitOptions {
  int threads = 0;         // 0: all cores
  int64_t context = 1024;  // tokens of the windows that the text is cut into
  int64_t clusters = 32;
  int64_t keys = 4096;  // of a head, at most
  int rounds = 12;
};

// Spherical k-means: `centroids` directions among these vectors [n, dims], each of length 1. It begins with vectors far
// from each other. The same bits whatever happens. Pure.
std::vector<float> cluster_directions(std::span<const float> vectors, int64_t dims, int64_t clusters, int rounds);

// The same bits whatever the threads. Errors: user (a text that is too short, options), unsupported (layers that do not
// see every key, or of different sizes), resource.
Result<RoutingCentroids> fit_routing_centroids(const std::shared_ptr<const LanguageModel>& model,
                                               std::span<const TokenId> tokens, const CentroidFitOptions& options);

}  // namespace millrace
