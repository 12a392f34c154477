// Estimates of sums of exp(logit - max) over many candidates, made with vector kernels instead of std::exp one by one.
// A sum decides where a nucleus ends, or which token is drawn. The decision is defined by the sum in doubles, in
// candidate order. An estimate decides only if it is farther from the limit than it can be from that sum. Otherwise the
// next finer estimate is computed, and finally the sum itself. So the outcome has the same bits with and without
// estimates, on every machine.
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
