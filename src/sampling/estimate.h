// Estimates of sums of exp(logit - max) over many candidates, made with vector kernels in place of std::exp one by one.
// What a sum decides (where a nucleus ends, which token is drawn) is taken from an estimate only if it is farther from
// the limit than the estimate can be from the sum in doubles, in candidate order, that defines the decision. Else the
// caller computes that sum. So the outcome has the same bits with and without estimates, on every machine.
#pragma once

#include <cstddef>

#include "kernels/exp_sum.h"

namespace millrace {

inline constexpr size_t kEstimateFrom = 2048;  // candidates; fewer are summed exactly
inline constexpr size_t kEstimateBlock = 256;  // candidates of one term of an estimate

// How far running sums of n terms may be apart, relative to the total: rounding of both sums and of their totals, at
// most 2^-53 for each term, and the errors of exp.
inline double estimate_error(size_t n) { return 4 * kExpSumError + 1e-15 * static_cast<double>(n); }

}  // namespace millrace
