#include <algorithm>
#include <array>
#include <cassert>

#include "models/blocks/blocks.h"
#include "models/lora/apply.h"

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

void project(ForwardContext& context, const float* x, ActivationRows rows, std::initializer_list<Projection> matrices) {
  std::array<LinearPart, 4> parts;
  assert(matrices.size() <= parts.size());
  size_t count = 0;
  auto run = [&] {
    linear(context.pool(), {parts.data(), count});
    count = 0;
  };
  for (const Projection& matrix : matrices) {
    const Activation kind = matrix.weight.format->activation;
    if (kind != rows.kind) {
      run();  // before its rows are overwritten
      rows = encode_activations(context.kernels(), context.pool(), kind, x, rows.cols, rows.tokens, rows.cols,
                                context.encoded.data());
    }
    parts[count++] = {.weight = &matrix.weight,
                      .x = rows,
                      .y = matrix.y,
                      .y_stride = matrix.weight.rows,
                      .bias = matrix.bias.empty() ? nullptr : matrix.bias.data()};
  }
  run();
  if (context.lora.empty()) return;
  for (const Projection& matrix : matrices) add_lora(context, matrix.weight, x, matrix.y);
}

}  // namespace millrace
