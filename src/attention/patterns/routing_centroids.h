// Centroids of the attention pattern routing_transformer, fitted to one model, and the JSON file in which `millrace
// centroids` stores them. Each layer lists its heads one after the other, and each head its clusters.
//
//   {"file": "millrace routing centroids", "model": NAME, "clusters": 32, "dims": 64, "layers": [[0.0312, ...], ...]}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct RoutingCentroids {
  int64_t clusters = 0, dims = 0;
  std::vector<std::vector<float>> layers;  // each [KV heads, clusters, dims], all finite

  int64_t heads(int64_t layer) const { return std::ssize(layers[static_cast<size_t>(layer)]) / (clusters * dims); }
  // Returns the centroids of a head: [clusters, dims].
  const float* of(int64_t layer, int64_t head) const {
    return layers[static_cast<size_t>(layer)].data() + head * clusters * dims;
  }
  std::string digest() const;  // 16 hexadecimal digits
};

// Errors: user (the file does not exist), corrupt (the file is not of this kind, or breaks the rules above).
Result<RoutingCentroids> read_routing_centroids(const std::string& path);
// Numbers are rounded to four decimals. Errors: resource.
Result<void> write_routing_centroids(const std::string& path, const RoutingCentroids& centroids,
                                     const std::string& model);

}  // namespace millrace
