// Reference norms, sums in double from the first value to the last.
// RMSNorm: Zhang and Sennrich, 2019. LayerNorm: Ba et al., 2016 (biased variance, two passes).
#include <cmath>

#include "kernels/ops.h"

namespace millrace {
namespace {

void rms_norm(const float* x, const float* w, float offset, float eps, int64_t n, float* y) noexcept {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    double weight = w ? static_cast<double>(w[i]) + offset : 1.0;
    y[i] = static_cast<float>(x[i] * factor * weight);
  }
}

void layer_norm(const float* x, const float* w, const float* b, float eps, int64_t n, float* y) noexcept {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += x[i];
  double mean = total / static_cast<double>(n);
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    double weight = w ? w[i] : 1.0;
    double bias = b ? b[i] : 0.0;
    y[i] = static_cast<float>((x[i] - mean) * factor * weight + bias);
  }
}

}  // namespace

void add_norm_ref(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
}

}  // namespace millrace
