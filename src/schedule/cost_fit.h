// Fits a piecewise cost model (costs/piecewise.cc) to measured steps. Minimizes the relative error with outliers
// weighted down: other load on the machine slows some steps down and speeds none up.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/cost_model.h"

namespace millrace {

struct MeasuredStep {
  StepShape shape;
  double seconds = 0;
};

struct SwapSpeed {
  double bytes_per_token = 0;
  double bytes_per_second = 0;  // 0: not known
};

struct DiskSpeed {
  double bytes_per_second = 0;  // 0: not known
  double overhead_seconds = 0;  // per load
};

// Fits load time from disk as a linear function of bytes: the line through the medians of the smallest and the largest
// measured size, each measured several times. Errors: user (fewer than two sizes, invalid times).
Result<DiskSpeed> fit_disk_speed(std::span<const std::pair<double, double>> bytes_and_seconds);

// The model as JSON that parse_cost_model() reads. All curves are non-decreasing: more work never takes less time.
// Errors: user (fewer than 8 steps, or a step time that is not above 0).
Result<std::string> fit_cost_model(std::span<const MeasuredStep> steps, const SwapSpeed& swap = {},
                                   const DiskSpeed& disk = {});

// |predicted - measured| / measured of each step.
std::vector<double> cost_errors(const CostModel& cost, std::span<const MeasuredStep> steps);

}  // namespace millrace
