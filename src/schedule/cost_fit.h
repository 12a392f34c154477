// Fits a piecewise cost model (costs/piecewise.cc) to measured steps by minimizing the relative error. Outliers have a
// lower weight, because other load on the machine makes some steps slower and none faster.
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
  double bytes_per_second = 0;  // 0: unknown
};

struct DiskSpeed {
  double bytes_per_second = 0;  // 0: unknown
  double overhead_seconds = 0;  // per load
};

// Fits the time of a load from disk as a linear function of its bytes: the line through the median times of the
// smallest and the largest size. Each size should be measured several times. Errors: user (fewer than two sizes,
// invalid times).
Result<DiskSpeed> fit_disk_speed(std::span<const std::pair<double, double>> bytes_and_seconds);

// Returns the fitted model as JSON that parse_cost_model() reads. All curves are non-decreasing: more work never takes
// less time. Errors: user (fewer than 8 steps, or a step time that is not above 0).
Result<std::string> fit_cost_model(std::span<const MeasuredStep> steps, const SwapSpeed& swap = {},
                                   const DiskSpeed& disk = {});

// Returns |predicted - measured| / measured for each step.
std::vector<double> cost_errors(const CostModel& cost, std::span<const MeasuredStep> steps);

}  // namespace millrace
