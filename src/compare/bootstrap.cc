#include "compare/bootstrap.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <vector>

#include "base/philox.h"

namespace millrace {
namespace {

constexpr int kDraws = 1000;
constexpr double kOutside = 0.025;  // on each side
constexpr uint64_t kSeed = 0x6d696c6c72616365;

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Sorts the values.
double median(std::span<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

template <typename Statistic>
Interval bootstrap(std::span<const double> values, Statistic statistic) {
  assert(!values.empty());
  std::vector<double> sample(values.begin(), values.end()), results;
  Interval out{.value = statistic(std::span(sample))};
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    for (size_t i = 0; i < values.size(); ++i)
      sample[i] = values[static_cast<size_t>(philox_uniform(kSeed, draw, i) * static_cast<double>(values.size()))];
    results.push_back(statistic(std::span(sample)));
  }
  std::ranges::sort(results);
  const auto outside = static_cast<size_t>(kOutside * kDraws);
  out.low = results[outside];
  out.high = results[kDraws - 1 - outside];
  return out;
}

std::vector<double> differences(std::span<const double> a, std::span<const double> b) {
  assert(a.size() == b.size());
  std::vector<double> out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

}  // namespace

Interval bootstrap_mean(std::span<const double> values) {
  return bootstrap(values, [](std::span<double> sample) { return mean(sample); });
}

Interval bootstrap_median(std::span<const double> values) {
  if (values.size() < kMinForMedian) {
    std::vector<double> sorted(values.begin(), values.end());
    const double middle = median(sorted);
    return {middle, sorted.front(), sorted.back()};
  }
  return bootstrap(values, [](std::span<double> sample) { return median(sample); });
}

Interval bootstrap_difference(std::span<const double> a, std::span<const double> b) {
  return bootstrap_mean(differences(a, b));
}

Interval bootstrap_median_difference(std::span<const double> a, std::span<const double> b) {
  return bootstrap_median(differences(a, b));
}

}  // namespace millrace
