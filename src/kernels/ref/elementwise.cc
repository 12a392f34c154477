// Reference elementwise arithmetic on rows of f32. add_scaled rounds once (a fused multiply-add), so that
// every instruction set gives the same bits.
#include <cmath>

#include "kernels/ops.h"

namespace millrace {
namespace {

void add(const float* x, float* y, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

void add_scaled(const float* x, float scale, float* y, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(x[i], scale, y[i]);
}

void scale(float* x, float factor, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

void add_elementwise_ref(KernelTable& table) {
  table.add = add;
  table.add_scaled = add_scaled;
  table.scale = scale;
}

}  // namespace millrace
