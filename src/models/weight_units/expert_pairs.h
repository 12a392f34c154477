// ExpertPairs: which experts of the next layer tokens chose after those of this one: statistics by which experts are
// read ahead. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

class ExpertPairs {
 public:
  explicit ExpertPairs(std::vector<size_t> experts);  // by layer
  // The experts that a pass chose in a layer.
  void observe(int64_t layer, std::span<const int32_t> chosen);
  // The `count` experts of the layer behind `layer` that followed these most often, none that never did.
  std::vector<int32_t> guess(int64_t layer, std::span<const int32_t> chosen, size_t count) const;

 private:
  std::vector<size_t> experts_;
  std::vector<std::vector<uint32_t>> counts_;  // by layer: [experts, experts of the next layer]
  int64_t last_layer_ = -2;
  std::vector<int32_t> last_;
};

}  // namespace millrace
