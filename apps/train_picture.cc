#include "train_picture.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "csv_rows.h"

namespace millrace {
namespace {

constexpr double kMillion = 1e6;

ChartAxis tokens_axis() {
  return {.title = "tokens seen", .unit = "million", .scaling = AxisScaling::linear, .from_zero = true};
}

// Returns the exponential moving average with weight 0.1, because the loss of one log line jumps.
ChartSeries smoothed(const ChartSeries& from) {
  ChartSeries out{.name = "running average", .sign = 0};
  double average = 0;
  for (const ChartPoint& p : from.points) {
    if (!std::isfinite(p.y.value)) continue;
    average = out.points.empty() ? p.y.value : 0.9 * average + 0.1 * p.y.value;
    out.points.push_back({p.x, {average}, ""});
  }
  return out;
}

Result<ChartPanel> loss_panel(const std::string& path) {
  MILLRACE_TRY(const auto rows, read_csv_rows(path));
  ChartSeries each{.name = "mean between two lines of the log", .mark = ChartMark::dots, .sign = -1};
  for (const CsvRow& row : rows) {
    MILLRACE_TRY(const double tokens, csv_number(row, "tokens", path));
    MILLRACE_TRY(const double loss, csv_number(row, "loss", path));
    each.points.push_back({{tokens / kMillion}, {loss}, ""});
  }
  ChartPanel out{.title = "Training loss"};
  out.x = tokens_axis();
  out.y = {.title = "loss", .unit = "nats per token of an answer"};
  ChartSeries average = smoothed(each);
  out.series = {std::move(each), std::move(average)};
  return out;
}

// One line for each task, over the items of all lengths.
Result<ChartPanel> accuracy_panel(const std::string& path) {
  MILLRACE_TRY(const auto rows, read_csv_rows(path));
  std::vector<std::string> tasks;
  std::map<std::string, std::map<double, std::pair<double, double>>> scores;  // [task][tokens]: right, items
  for (const CsvRow& row : rows) {
    const auto task = row.find("task");
    if (task == row.end()) return Error::corrupt(fmt::format("{}: has no column task", path));
    MILLRACE_TRY(const double tokens, csv_number(row, "tokens", path));
    MILLRACE_TRY(const double right, csv_number(row, "right", path));
    MILLRACE_TRY(const double items, csv_number(row, "items", path));
    if (!scores.contains(task->second)) tasks.push_back(task->second);
    auto& [all_right, all_items] = scores[task->second][tokens / kMillion];
    all_right += right;
    all_items += items;
  }
  ChartPanel out{.title = "Accuracy on held-out exercises", .names = SeriesNames::at_line_ends};
  out.x = tokens_axis();
  out.y = {
      .title = "right", .unit = "%", .scaling = AxisScaling::linear, .better = BetterEnd::high, .low = 0, .high = 100};
  for (size_t i = 0; i < tasks.size(); ++i) {
    ChartSeries line{.name = tasks[i], .sign = static_cast<int>(i)};
    for (const auto& [tokens, score] : scores[tasks[i]])
      line.points.push_back({{tokens}, {100 * score.first / score.second}, ""});
    out.series.push_back(std::move(line));
  }
  return out;
}

}  // namespace

Result<Chart> training_chart(const std::string& folder, const std::string& name) {
  MILLRACE_TRY(ChartPanel loss, loss_panel(folder + "/loss.csv"));
  MILLRACE_TRY(ChartPanel accuracy, accuracy_panel(folder + "/accuracy.csv"));
  Chart out{.title = name, .plot_height = 300};
  out.panels = {std::move(loss), std::move(accuracy)};
  return out;
}

}  // namespace millrace
