// Sums of exp for code that has no KernelTable. They differ by instruction set in their last bits, so they are only for
// decisions whose outcome does not depend on these: see sampling/estimate.h.
#pragma once

#include <cstdint>

namespace millrace {

// KernelTable::exp_sum of the fastest table of this machine (select_isa()).
double (*fastest_exp_sum())(const float* x, double shift, int64_t n);

inline constexpr double kExpSumError = 1e-12;  // relative, of each term

}  // namespace millrace
