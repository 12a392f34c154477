#include "train/loss_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace millrace {

Result<std::vector<LossPoint>> read_loss_csv(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line)) return Error::user("cannot read the loss curve: " + path);
  std::vector<LossPoint> points;
  while (std::getline(in, line)) {
    double step = 0, epoch = 0;
    LossPoint p;
    if (std::sscanf(line.c_str(), "%lf,%lf,%lf,%lf,%lf", &step, &p.tokens, &epoch, &p.train, &p.held_out) != 5)
      return Error::corrupt("the loss curve has a line that is not a row of numbers: " + path + ": " + line);
    points.push_back(p);
  }
  return points;
}

Result<Chart> loss_chart(const std::vector<LossPoint>& points, const std::string& title) {
  if (points.size() < 2) return Error::user("the loss curve needs at least two evaluations: " + title);
  ChartSeries train{.name = fmt::format("training, {:.3f} at the end", points.back().train), .sign = 0};
  ChartSeries held_out{.name = fmt::format("held-out, {:.3f} at the end", points.back().held_out), .sign = 1};
  std::vector<double> losses;
  for (const LossPoint& p : points) {
    train.points.push_back({{p.tokens / 1e6}, {p.train}, ""});
    held_out.points.push_back({{p.tokens / 1e6}, {p.held_out}, ""});
    for (const double loss : {p.train, p.held_out})
      if (std::isfinite(loss)) losses.push_back(loss);
  }
  // The first steps fall from ln(vocabulary) and would flatten the rest: the highest twentieth of the points is
  // clipped.
  std::ranges::sort(losses);
  ChartPanel panel;
  panel.x = {.title = "tokens seen", .unit = "million", .scaling = AxisScaling::linear, .from_zero = true};
  panel.y = {.title = "loss", .unit = "nats per token", .scaling = AxisScaling::linear, .better = BetterEnd::low};
  if (!losses.empty()) panel.y.high = losses[losses.size() - 1 - losses.size() / 20];
  panel.series = {std::move(train), std::move(held_out)};
  Chart chart{.title = title, .plot_height = 360};
  chart.panels = {std::move(panel)};
  return chart;
}

}  // namespace millrace
