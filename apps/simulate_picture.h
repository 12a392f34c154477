// The picture of `millrace simulate`.
#pragma once

#include <string>
#include <vector>

#include "picture/chart.h"

namespace millrace {

// One policy's run: all values in seconds.
struct SimulatedTimes {
  std::string policy;
  std::vector<double> ttft, gaps, e2e;
  double tokens_per_second = 0;
};

// Returns the distributions of the times, a line for each policy, and the output as bars.
Chart simulation_chart(const std::string& title, int64_t requests, std::vector<SimulatedTimes> runs);

}  // namespace millrace
