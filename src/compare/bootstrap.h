// Confidence intervals by the bootstrap (Efron, 1979, "Bootstrap Methods: Another Look at the Jackknife"): items are
// drawn with replacement many times, and the interval lies between percentiles of the means of the draws. A
// counter-based generator draws the random numbers, so results are reproducible.
#pragma once

#include <span>

namespace millrace {

struct Interval {
  double value = 0;  // the mean, or the median
  double low = 0;    // lower end of the interval, which has 95 % of the bootstrap's values
  double high = 0;
};

// Minimum number of values for the interval of a median. With n values, the true median is outside their range with
// probability 2^(1-n), which is more than 5 % for fewer values. In this case `low` and `high` are the minimum and the
// maximum.
inline constexpr size_t kMinForMedian = 6;

// Return the mean or median of the values, of which there is at least one, with its interval.
Interval bootstrap_mean(std::span<const double> values);
Interval bootstrap_median(std::span<const double> values);
// Return the mean or the median of a[i] - b[i], with its interval. a[i] and b[i] are values of one item under two
// configurations.
Interval bootstrap_difference(std::span<const double> a, std::span<const double> b);
Interval bootstrap_median_difference(std::span<const double> a, std::span<const double> b);

}  // namespace millrace
