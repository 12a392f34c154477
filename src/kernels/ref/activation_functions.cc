// Reference activation functions in double: SiLU (Elfwing et al., 2017), GELU and its tanh form (Hendrycks
// and Gimpel, 2016), gated forms (Shazeer, 2020, "GLU Variants Improve Transformer"), ReLU, soft-cap.
#include <cmath>

#include "kernels/ops.h"

namespace millrace {
namespace {

double silu(double x) noexcept { return x / (1.0 + std::exp(-x)); }

double gelu_tanh_of(double x) noexcept {
  constexpr double kRootTwoOverPi = 0.79788456080286535588;
  return 0.5 * x * (1.0 + std::tanh(kRootTwoOverPi * (x + 0.044715 * x * x * x)));
}

double gelu_erf_of(double x) noexcept { return 0.5 * x * std::erfc(-x * 0.70710678118654752440); }

template <double (*kFunction)(double)>
void gated(const float* gate, const float* up, float* y, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(kFunction(gate[i]) * up[i]);
}

template <double (*kFunction)(double)>
void in_place(float* x, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(kFunction(x[i]));
}

void relu(float* x, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? 0.0f : x[i];
}

void softcap(float* x, float cap, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(cap * std::tanh(static_cast<double>(x[i]) / cap));
  }
}

}  // namespace

void add_activation_functions_ref(KernelTable& table) {
  table.silu_mul = gated<silu>;
  table.gelu_tanh_mul = gated<gelu_tanh_of>;
  table.gelu_erf_mul = gated<gelu_erf_of>;
  table.gelu_tanh = in_place<gelu_tanh_of>;
  table.gelu_erf = in_place<gelu_erf_of>;
  table.relu = relu;
  table.softcap = softcap;
}

}  // namespace millrace
