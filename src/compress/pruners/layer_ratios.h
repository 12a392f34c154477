// How pruners that survey all layers divide a model's zeros among its layers. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct LayerShare {
  double importance = 0;
  int64_t weights = 0;
};

// The fraction of zeros of each layer: at most `spread` above or below a common value, falling linearly with the
// importance, and in 0 to 1. The zeros of all layers together are `sparsity` of the weights, unless a fraction was cut
// off at 0 or 1.
std::vector<double> layer_ratios(const std::vector<LayerShare>& layers, double sparsity, double spread);

}  // namespace millrace
