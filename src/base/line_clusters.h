// K-means of numbers on a line, solved exactly: clusters of sorted numbers are intervals, so dynamic programming over
// their ends finds the division with the lowest cost (Wang and Song, 2011, "Ckmeans.1d.dp"). The begin of the best last
// cluster grows with its end, so the search can be halved: count * n * log n steps for n numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

// Returns the means of `count` clusters, ascending, that minimize the sum of cost[i] * (values[i] - nearest mean)^2.
// With fewer numbers than clusters the last mean is repeated; without any, all are 0. Costs must be positive.
std::vector<double> cluster_means(std::span<const float> values, std::span<const double> costs, int64_t count);

}  // namespace millrace
