// Estimates of sums of exp(logit - max) over many candidates. Vector kernels compute them faster than std::exp for each
// candidate. Such a sum decides where a nucleus ends, or which token is drawn. The exact sum is the one in doubles, in
// candidate order. An estimate decides only if its distance from the limit exceeds its possible error. Otherwise a
// finer estimate is computed, and finally the exact sum. Decisions are therefore identical with and without estimates,
// on every machine.
#pragma once

#include <cstddef>

#include "kernels/row_scan.h"

namespace millrace {

inline constexpr size_t kEstimateFrom = 2048;  // candidates; fewer are summed exactly
inline constexpr size_t kEstimateBlock = 256;  // candidates of one term of an estimate

enum class Estimate { coarse, fine };  // coarse: sums in f32; fine: sums in doubles

// Returns the maximum relative error of an estimated sum of n terms: the rounding of both sums, at most 2^-53 per term,
// and the errors of exp. A partial sum of these terms may have the same error in addition.
inline double estimate_error(Estimate estimate, size_t n) {
  return (estimate == Estimate::coarse ? kCoarseExpSumError : 0) + 2 * kExpSumError + 1e-15 * static_cast<double>(n);
}

}  // namespace millrace
