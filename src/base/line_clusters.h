// Exact one-dimensional k-means (Wang and Song, 2011, "Ckmeans.1d.dp"). Clusters of sorted numbers are intervals, so
// dynamic programming over their ends finds the division with the lowest cost. The later the last cluster ends, the
// later its best begin; divide and conquer thus needs count * n * log n steps for n numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

// Returns the means of `count` clusters, ascending, that minimize the sum of costs[i] * (values[i] - nearest mean)^2.
// If there are fewer numbers than clusters, the last mean is repeated; without numbers, all means are 0. Costs must be
// positive.
std::vector<double> cluster_means(std::span<const float> values, std::span<const double> costs, int64_t count);

}  // namespace millrace
