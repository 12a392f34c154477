// ExpertPairs counts which experts of a layer tokens chose after which experts of the layer before. The counts say
// which experts to read ahead. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

class ExpertPairs {
 public:
  explicit ExpertPairs(std::vector<size_t> experts);  // numbers of experts by layer
  // Returns the bytes of the counts for these numbers of experts by layer.
  static int64_t bytes(const std::vector<size_t>& experts);
  // Counts the experts that a pass chose in a layer. `chosen`: ascending. If the layer runs in groups, the first call
  // has all experts, and later calls with the remaining ones change nothing.
  void observe(int64_t layer, std::span<const int32_t> chosen);
  // Returns up to `count` experts of layer `layer` + 1 that followed the experts in `chosen` most often. Experts that
  // never followed them are left out.
  std::vector<int32_t> guess(int64_t layer, std::span<const int32_t> chosen, size_t count) const;

 private:
  std::vector<size_t> experts_;
  std::vector<std::vector<uint32_t>> counts_;  // by layer: [experts, experts of the next layer]
  int64_t last_layer_ = -2;
  std::vector<int32_t> last_;
};

}  // namespace millrace
