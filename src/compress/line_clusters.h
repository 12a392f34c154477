// K-means of numbers on a line, solved exactly: clusters of sorted numbers are intervals, so dynamic programming over
// their ends finds the division of least cost (Wang and Song, 2011, "Ckmeans.1d.dp"). The best last cluster's begin
// grows with its end, which divides the search in halves: count * n * log n steps for n numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

// The means of `count` clusters, ascending, for which the sum of cost[i] * (values[i] - nearest mean)^2 is least. With
// fewer numbers than clusters the last mean is repeated; without any, all are 0. Costs must be positive.
std::vector<double> cluster_means(std::span<const float> values, std::span<const double> costs, int64_t count);

}  // namespace millrace
