// Reference exp_sum, and the fastest scans on this machine.
#include <cfloat>
#include <cmath>

#include "kernels/ops.h"
#include "kernels/row_scan.h"

namespace millrace {
namespace {

double exp_sum_ref(const float* x, double shift, int64_t n) noexcept {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    if (!std::isnan(x[i])) sum += std::exp(std::fmin(x[i], FLT_MAX) - shift);
  return sum;
}

double exp_sum_coarse_ref(const float* x, float shift, int64_t n) noexcept { return exp_sum_ref(x, shift, n); }

}  // namespace

void add_exp_sum_ref(KernelTable& table) {
  table.exp_sum = exp_sum_ref;
  table.exp_sum_coarse = exp_sum_coarse_ref;
}

const RowScan& fastest_row_scan() {
  static const RowScan fastest = [] {
    const auto isa = select_isa();  // a bad MILLRACE_ISA is reported where a model is loaded
    const KernelTable table = make_kernel_table(isa.ok() ? *isa : Isa::ref);
    return RowScan{table.exp_sum, table.exp_sum_coarse, table.select_from};
  }();
  return fastest;
}

}  // namespace millrace
