// The scale of an axis: which values it covers, where they are drawn, and its ticks at 1, 2 and 5 times powers of ten.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "picture/chart.h"

namespace millrace {

// The smallest and the largest of the values added; values that are not finite, or too large to subtract, are ignored.
struct AxisSpan {
  double low = INFINITY, high = -INFINITY;

  static bool counts(double value) { return std::abs(value) < 1e290; }
  void add(double value);
  bool empty() const { return low > high; }
};

struct AxisScale {
  double low = 0, high = 1;  // the values at the ends; their base-10 logarithms if `log`
  double from = 0, to = 1;   // the coordinates of the ends
  bool log = false;

  // Returns false for values that have no place: not finite, or not positive on a logarithmic axis.
  bool has(double value) const { return AxisSpan::counts(value) && (!log || value > 0); }
  // Returns the coordinate of a value that has one; values beyond the ends are clipped to them.
  double at(double value) const;
};

// Chooses a scale for the values of `span`, with a margin of `margin` of its length at ends that are not fixed.
AxisScale make_axis_scale(const ChartAxis& axis, const AxisSpan& span, double margin, double from, double to);

// Returns at most `count` + 1 round values inside the scale, in ascending order; at least one for a linear scale.
std::vector<double> axis_ticks(const AxisScale& scale, int count);

// Returns the texts of ticks, with the same number of decimals and the same power of a thousand (k, M, G) for all.
std::vector<std::string> tick_texts(const AxisScale& scale, const std::vector<double>& ticks);

}  // namespace millrace
