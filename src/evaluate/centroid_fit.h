// Fits the centroids of the attention pattern routing_transformer to a model (Roy et al., 2020, section 4.1). It
// collects the keys of each KV head on a text, normalizes them as the pattern does, and clusters them with k-means. The
// paper updates the centroids during training: each is a moving average of the vectors nearest to it. Here all vectors
// are available, and rounds of k-means (Lloyd, 1982) converge to the same averages.
//
// The paper averages queries and keys, which are equal in its models. In other models, queries are far from keys.
// Centroids between queries and keys then keep less of the attention than centroids of the keys alone.
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
  int64_t keys = 4096;  // maximum number of keys of a head
  int rounds = 12;
};

// Spherical k-means: returns the centroids [clusters, dims] of `vectors` [n, dims]; vectors and centroids have
// length 1. The initial centroids are vectors that are far from each other. Deterministic. Pure.
std::vector<float> cluster_directions(std::span<const float> vectors, int64_t dims, int64_t clusters, int rounds);

// Fits the centroids to the text. Deterministic for any number of threads. Errors: user (the text is too short, invalid
// options), unsupported (some layers do not see every key, or their heads have different sizes), resource.
Result<RoutingCentroids> fit_routing_centroids(const std::shared_ptr<const LanguageModel>& model,
                                               std::span<const TokenId> tokens, const CentroidFitOptions& options);

}  // namespace millrace
