// Reference exp_sum, and the fastest version on this machine.
#include "kernels/exp_sum.h"

#include <cfloat>
#include <cmath>

#include "kernels/ops.h"

namespace millrace {
namespace {

double exp_sum_ref(const float* x, double shift, int64_t n) noexcept {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    if (!std::isnan(x[i])) sum += std::exp(std::fmin(x[i], FLT_MAX) - shift);
  return sum;
}

}  // namespace

void add_exp_sum_ref(KernelTable& table) { table.exp_sum = exp_sum_ref; }

double (*fastest_exp_sum())(const float* x, double shift, int64_t n) {
  static const auto fastest = [] {
    const auto isa = select_isa();  // a bad MILLRACE_ISA is reported where a model is loaded
    return make_kernel_table(isa.ok() ? *isa : Isa::ref).exp_sum;
  }();
  return fastest;
}

}  // namespace millrace
