// Summary: statistics of a set of measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace millrace {

struct Summary {
  int64_t count = 0;
  double mean = 0, min = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};

// Returns quantile q of sorted values, with linear interpolation like numpy's default.
inline double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

inline Summary summarize(std::vector<double> values) {
  Summary out;
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  for (double value : values) out.mean += value;
  out.count = static_cast<int64_t>(values.size());
  out.mean /= static_cast<double>(out.count);
  out.min = values.front();
  out.p50 = quantile(values, 0.5);
  out.p90 = quantile(values, 0.9);
  out.p99 = quantile(values, 0.99);
  out.max = values.back();
  return out;
}

}  // namespace millrace
