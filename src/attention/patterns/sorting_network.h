// The sorting network of the attention pattern sinkhorn (Tay et al., 2020, section 3.1): two layers that score how well
// each block of keys matches a block of queries. Their input x is the sum of the keys before the block of queries.
//
//   s = relu(B relu(A x + a) + b)         x [dims], A [hidden, dims], B [blocks, hidden]
//
// A network is trained with the model, one for each KV head. The file is JSON; each layer lists its heads one after the
// other:
//
//   {"file": "millrace sorting network", "dims": 64, "hidden": 32, "blocks": 256,
//    "layers": [{"A": [0.031, ...], "a": [...], "B": [...], "b": [...]}, ...]}
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

inline constexpr int64_t kMaxSortHidden = 1024;

struct SortingNetwork {
  struct Layer {
    std::vector<float> pool, pool_bias, sort, sort_bias;  // A, a, B, b; each [KV heads, ...], all finite
  };
  int64_t dims = 0, hidden = 0, blocks = 0;
  std::vector<Layer> layers;

  int64_t heads(int64_t layer) const { return std::ssize(layers[static_cast<size_t>(layer)].pool_bias) / hidden; }
  std::string digest() const;  // 16 hexadecimal digits
  // Scores the first scores.size() blocks; blocks from `blocks` on receive 0. `work`: room for `hidden` floats.
  void score(int64_t layer, int64_t head, std::span<const float> x, std::span<float> scores,
             std::span<float> work) const;
};

// Errors: user (the file does not exist), corrupt (the file is not of this kind, or breaks the rules above).
Result<SortingNetwork> read_sorting_network(const std::string& path);

}  // namespace millrace
