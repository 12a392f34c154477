// Draws a loss curve: reads a run's loss.csv and writes a PNG with axes, a grid, two lines (training, held-out) and
// labels. Thread-safety: stateless.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct LossPoint {
  double tokens = 0;               // tokens trained on so far
  double train = 0, held_out = 0;  // nats per token
};

// Errors: user (the file does not exist), corrupt (a line is not a row of numbers).
Result<std::vector<LossPoint>> read_loss_csv(const std::string& path);

Result<void> draw_loss_png(const std::vector<LossPoint>& points, const std::string& title, const std::string& path);

}  // namespace millrace
