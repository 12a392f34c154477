// Divides a model's zeros among its layers, for pruners that survey all layers. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct LayerShare {
  double importance = 0;
  int64_t weights = 0;
};

// Returns the fraction of zeros of each layer. It falls linearly with the layer's importance, and differs by at most
// `spread` from a common value. The zeros of all layers together are `sparsity` of all weights, unless a fraction had
// to be limited to 0 to 1.
std::vector<double> layer_ratios(const std::vector<LayerShare>& layers, double sparsity, double spread);

}  // namespace millrace
