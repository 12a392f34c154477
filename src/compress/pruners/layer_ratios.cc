#include "compress/pruners/layer_ratios.h"

#include <algorithm>

namespace millrace {

std::vector<double> layer_ratios(const std::vector<LayerShare>& layers, double sparsity, double spread) {
  std::vector<double> out;
  if (layers.empty()) return out;
  const auto [low, high] = std::ranges::minmax(layers, {}, &LayerShare::importance);
  const double range = high.importance - low.importance;
  double shift = 0, weights = 0;
  for (const LayerShare& layer : layers) {
    out.push_back(range > 0 ? -2 * spread * (layer.importance - low.importance) / range : 0);
    shift += out.back() * static_cast<double>(layer.weights);
    weights += static_cast<double>(layer.weights);
  }
  for (double& ratio : out) ratio = std::clamp(ratio - (weights > 0 ? shift / weights : 0) + sparsity, 0.0, 1.0);
  return out;
}

}  // namespace millrace
