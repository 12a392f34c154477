// Clusters on a line: no division into intervals costs less, and rows of few numbers are exact.
#include "base/line_clusters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace millrace {
namespace {

double cost_of(const std::vector<float>& values, const std::vector<double>& costs, const std::vector<double>& means) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    double least = std::numeric_limits<double>::infinity();
    for (double mean : means) least = std::min(least, std::pow(values[i] - mean, 2));
    sum += costs[i] * least;
  }
  return sum;
}

// Of all divisions of ascending numbers into `count` intervals.
double least_cost(const std::vector<float>& values, const std::vector<double>& costs, size_t count) {
  const std::function<double(size_t, size_t)> rest = [&](size_t begin, size_t clusters) {
    if (clusters == 0) return begin == values.size() ? 0.0 : std::numeric_limits<double>::infinity();
    double least = std::numeric_limits<double>::infinity();
    for (size_t end = begin + 1; end <= values.size(); ++end) {
      double weight = 0, moment = 0, cost = 0;
      for (size_t i = begin; i < end; ++i) weight += costs[i], moment += costs[i] * values[i];
      for (size_t i = begin; i < end; ++i) cost += costs[i] * std::pow(values[i] - moment / weight, 2);
      least = std::min(least, cost + rest(end, clusters - 1));
    }
    return least;
  };
  return rest(0, count);
}

TEST(LineClusters, NoDivisionCostsLess) {
  std::mt19937 random(3);
  for (int round = 0; round < 40; ++round) {
    std::vector<float> values(11);
    std::vector<double> costs(11);
    for (float& v : values) v = static_cast<float>(random() % (round % 2 ? 1000u : 12u)) / 100 - 4;  // some are equal
    for (double& w : costs) w = 1e-3 + static_cast<double>(random() % 1000) * (random() % 5 == 0 ? 1 : 0.01);
    for (const int64_t count : {1, 2, 4, 8}) {
      const std::vector<double> means = cluster_means(values, costs, count);
      ASSERT_EQ(std::ssize(means), count);
      EXPECT_TRUE(std::ranges::is_sorted(means));
      std::vector<size_t> order(values.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
      std::vector<float> sorted;
      std::vector<double> sorted_costs;
      for (size_t i : order) sorted.push_back(values[i]), sorted_costs.push_back(costs[i]);
      const double least = least_cost(sorted, sorted_costs, static_cast<size_t>(count));
      EXPECT_NEAR(cost_of(values, costs, means), least, 1e-9 * (1 + least)) << round << " " << count;
    }
  }
}

TEST(LineClusters, FewNumbersAreExact) {
  EXPECT_EQ(cluster_means({}, {}, 2), (std::vector<double>{0, 0}));
  EXPECT_EQ(cluster_means(std::vector<float>{3, 1}, std::vector<double>{1, 1}, 4), (std::vector<double>{1, 3, 3, 3}));
  const std::vector<float> values = {2, 2, 5, 5, -1};
  const std::vector<double> costs = {1, 3, 1, 1, 0.5};
  EXPECT_EQ(cost_of(values, costs, cluster_means(values, costs, 4)), 0);
}

}  // namespace
}  // namespace millrace
