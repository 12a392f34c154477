// Estimates of sums of exp(logit - max) over many candidates, made with vector kernels in place of std::exp one by one.
// What a sum decides (where a nucleus ends, which token is drawn) is taken from an estimate only if it is farther from
// the limit than the estimate can be from the sum in doubles, in candidate order, that defines the decision. Else the
// next finer estimate is made, and at last that sum. So the outcome has the same bits with and without estimates, on
// every machine.
#pragma once

#include <cstddef>

#include "kernels/row_scan.h"

namespace millrace {

inline constexpr size_t kEstimateFrom = 2048;  // candidates; fewer are summed exactly
inline constexpr size_t kEstimateBlock = 256;  // candidates of one term of an estimate

enum class Estimate { coarse, fine };  // sums in f32 and in doubles

// How far a total of n terms may be from that of the definition, relative to it: rounding of both sums, at most 2^-53
// for each term, and the errors of exp. A running sum of such terms may be as far off again.
inline double estimate_error(Estimate estimate, size_t n) {
  return (estimate == Estimate::coarse ? kCoarseExpSumError : 0) + 2 * kExpSumError + 1e-15 * static_cast<double>(n);
}

}  // namespace millrace
