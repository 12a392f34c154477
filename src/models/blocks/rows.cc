#include <algorithm>

#include "models/blocks/blocks.h"

namespace millrace {

void norm_row(const ArchSpec& spec, const NormWeights& weights, const KernelTable& kernels, const float* x, float* y) {
  const int64_t width = spec.width;
  if (weights.scale.empty()) {
    if (y != x) std::copy_n(x, width, y);
  } else if (spec.norm == NormKind::rms) {
    kernels.rms_norm(x, weights.scale.data(), spec.norm_offset, spec.norm_eps, width, y);
  } else {
    kernels.layer_norm(x, weights.scale.data(), weights.bias.empty() ? nullptr : weights.bias.data(), spec.norm_eps,
                       width, y);
  }
}

}  // namespace millrace
