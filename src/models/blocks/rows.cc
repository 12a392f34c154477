#include <algorithm>

#include "models/blocks/blocks.h"

namespace millrace {

void norm_rows(const ArchSpec& spec, const NormWeights& weights, ForwardContext& context, const float* x, int64_t tokens, float* y) {
  const KernelTable& kernels = context.kernels();
  const int64_t width = spec.width;
  context.pool().parallel_for(tokens, [&](int64_t t, int) {
    const float* row = x + t * width;
    float* to = y + t * width;
    if (weights.scale.empty()) {
      if (to != row) std::copy_n(row, width, to);
    } else if (spec.norm == NormKind::rms) {
      kernels.rms_norm(row, weights.scale.data(), spec.norm_offset, spec.norm_eps, width, to);
    } else {
      kernels.layer_norm(row, weights.scale.data(), weights.bias.empty() ? nullptr : weights.bias.data(), spec.norm_eps, width, to);
    }
  });
}

void linear_bias(ForwardContext& context, const Weight& weight, const std::vector<float>& bias, const ActivationRows& x, float* y,
                 int64_t y_stride) {
  linear(context.pool(), weight, x, y, y_stride);
  if (bias.empty()) return;
  context.pool().parallel_for(x.tokens, [&](int64_t t, int) { context.kernels().add(bias.data(), y + t * y_stride, weight.rows); });
}

}  // namespace millrace
