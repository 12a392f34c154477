// Reference of Mamba's two sequential parts: the causal convolution of each channel, and the selective scan (Gu and
// Dao, 2023, algorithm 2). Sums in double; the state is rounded to float after every token, as it is stored.
#include <cmath>

#include "kernels/ops.h"

namespace millrace {
namespace {

double sigmoid_times(double x, double z) { return x / (1.0 + std::exp(-z)); }

double softplus(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

void causal_conv(const CausalConvArgs& a) noexcept {
  for (int64_t t = 0; t < a.tokens; ++t) {
    for (int64_t c = 0; c < a.channels; ++c) {
      const float input = a.x[t * a.x_stride + c];
      double sum = a.bias ? a.bias[c] : 0.0;
      for (int64_t k = 0; k + 1 < a.taps; ++k) {
        sum += static_cast<double>(a.weight[k * a.stride + c]) * a.window[k * a.stride + c];
        if (k > 0) a.window[(k - 1) * a.stride + c] = a.window[k * a.stride + c];
      }
      sum += static_cast<double>(a.weight[(a.taps - 1) * a.stride + c]) * input;
      if (a.taps > 1) a.window[(a.taps - 2) * a.stride + c] = input;
      a.y[t * a.y_stride + c] = static_cast<float>(sigmoid_times(sum, sum));
    }
  }
}

void selective_scan(const SelectiveScanArgs& a) noexcept {
  for (int64_t t = 0; t < a.tokens; ++t) {
    for (int64_t c = 0; c < a.channels; ++c) {
      const double x = a.x[t * a.x_stride + c];
      const double step = softplus(static_cast<double>(a.step[t * a.x_stride + c]));
      double y = x * a.d[c];
      for (int64_t n = 0; n < a.state_values; ++n) {
        float& state = a.state[n * a.stride + c];
        state = static_cast<float>(std::exp(step * a.a[n * a.stride + c]) * state + step * x * a.b[t * a.b_stride + n]);
        y += static_cast<double>(state) * a.c[t * a.b_stride + n];
      }
      const double z = a.z[t * a.z_stride + c];
      a.y[t * a.x_stride + c] = static_cast<float>(y * sigmoid_times(z, z));
    }
  }
}

}  // namespace

void add_selective_scan_ref(KernelTable& table) {
  table.causal_conv = causal_conv;
  table.selective_scan = selective_scan;
}

}  // namespace millrace
