// The loss curve of a run: reads loss.csv, and describes a chart with two lines, training and held-out. Thread-safety:
// stateless.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "picture/chart.h"

namespace millrace {

struct LossPoint {
  double tokens = 0;               // tokens trained on so far
  double train = 0, held_out = 0;  // nats per token
};

// Errors: user (the file does not exist), corrupt (a line is not a row of numbers).
Result<std::vector<LossPoint>> read_loss_csv(const std::string& path);

// Errors: user (fewer than two points).
Result<Chart> loss_chart(const std::vector<LossPoint>& points, const std::string& title);

}  // namespace millrace
