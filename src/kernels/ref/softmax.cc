// Reference softmax, in place, relative to the maximum. A row whose values are all -inf becomes zeros, so a fully
// masked row has no weight instead of NaN.
#include <cmath>
#include <limits>

#include "kernels/ops.h"

namespace millrace {
namespace {

void softmax(float* x, int64_t n) noexcept {
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) max = x[i] <= max ? max : x[i];
  if (max == -std::numeric_limits<float>::infinity()) {
    for (int64_t i = 0; i < n; ++i) x[i] = 0;
    return;
  }
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - max);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(std::exp(static_cast<double>(x[i]) - max) / sum);
}

}  // namespace

void add_softmax_ref(KernelTable& table) { table.softmax = softmax; }

}  // namespace millrace
