// Confidence intervals by the bootstrap (Efron, 1979, "Bootstrap Methods: Another Look at the Jackknife"): items are
// drawn with replacement, the mean is taken again, and the interval is between percentiles of the means. Its random
// numbers are counted, so a result is the same every time.
#pragma once

#include <span>

namespace millrace {

struct Interval {
  double value = 0;  // the mean, or the median
  double low = 0;    // 95 % of the bootstrap's values are between these
  double high = 0;
};

// With fewer values, the median is outside of all of them in more than 5 % of the cases (2^(1-n)), so there is no such
// interval: low and high are then the lowest and the highest value.
inline constexpr size_t kMinForMedian = 6;

// Interval of the mean of at least one value.
Interval bootstrap_mean(std::span<const double> values);
Interval bootstrap_median(std::span<const double> values);
// Interval of the mean of a[i] - b[i], for the same items under two configurations.
Interval bootstrap_difference(std::span<const double> a, std::span<const double> b);
Interval bootstrap_median_difference(std::span<const double> a, std::span<const double> b);

}  // namespace millrace
