#include "compare/compare_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr int kFrontSign = 0, kUnseenSign = 4;      // a disc, a cross
constexpr size_t kLongName = 44, kManyPoints = 14;  // from which panels take the whole width

ChartValue value_of(const Interval& interval) {
  const bool bar = interval.high > interval.low;
  return {interval.value, bar ? interval.low : NAN, bar ? interval.high : NAN};
}

// The points that no other one beats on both axes, from left to right.
ChartSeries best_line(const ChartPanel& panel) {
  const bool more_x = panel.x.better == BetterEnd::high, more_y = panel.y.better == BetterEnd::high;
  const auto better = [](double a, double b, bool more) { return more ? a > b : a < b; };
  std::vector<ChartPoint> all;
  for (const ChartSeries& series : panel.series) all.insert(all.end(), series.points.begin(), series.points.end());
  ChartSeries line{.name = "best of these two axes", .mark = ChartMark::line, .sign = -1};
  for (const ChartPoint& own : all)
    if (std::ranges::none_of(all, [&](const ChartPoint& other) {
          const bool worse = better(own.x.value, other.x.value, more_x) || better(own.y.value, other.y.value, more_y);
          return !worse && (better(other.x.value, own.x.value, more_x) || better(other.y.value, own.y.value, more_y));
        }))
      line.points.push_back({{own.x.value}, {own.y.value}, ""});
  std::ranges::sort(line.points, {}, [](const ChartPoint& p) { return p.x.value; });
  return line;
}

ChartPanel front_panel(const char* title, const char* unit, BetterEnd better, const ChartAxis& quality) {
  ChartPanel out;
  out.x = {.title = title, .unit = unit, .better = better};
  out.y = quality;
  out.series = {{.name = "on the Pareto front", .mark = ChartMark::points, .sign = kFrontSign},
                {.name = "not on it", .mark = ChartMark::points, .sign = -1, .hollow = true},
                {.name = "its cost is not visible to this suite", .mark = ChartMark::points, .sign = kUnseenSign}};
  return out;
}

void add_heat_panels(Chart& chart, const CompareResult& result, const SuiteFigure& figure) {
  for (const ConfigResult& config : result.configs)
    if (auto panel = heat_panel(config, figure.suite, figure.metric)) chart.panels.push_back(std::move(*panel));
}

}  // namespace

Chart front_chart(const CompareResult& result, size_t figure) {
  Chart chart{.subtitle = result.machine, .columns = 2, .plot_height = 340};
  const std::vector<bool> front = pareto_front(result);
  const SuiteFigure* shown = nullptr;
  for (const ConfigResult& config : result.configs)
    if (!shown && figure < config.quality.size() && config.quality[figure].items > 0) shown = &config.quality[figure];
  ChartAxis quality{.title = shown ? figure_name(*shown) : "quality"};
  if (shown) quality.better = shown->more_is_better ? BetterEnd::high : BetterEnd::low;
  quality.better_at_top = true;
  ChartPanel speed = front_panel("decode speed", "tokens/s", BetterEnd::high, quality);
  ChartPanel memory = front_panel("weights and KV of one stream", "MB", BetterEnd::low, quality);
  size_t longest = 0;
  for (size_t i = 0; i < result.configs.size(); ++i) {
    const ConfigResult& config = result.configs[i];
    if (figure >= config.quality.size() || config.quality[figure].items == 0) continue;
    const SuiteFigure& of = config.quality[figure];
    const size_t kind = !of.unseen.empty() ? 2 : front[i] ? 0 : 1;
    const std::string name = config.name + (i == 0 ? " (base)" : "");
    longest = std::max(longest, name.size());
    if (!config.decode.empty())
      speed.series[kind].points.push_back({value_of(bootstrap_median(config.decode)), value_of(of.paired), name});
    const double megabytes = static_cast<double>(stored_bytes_of(config)) / 1e6;
    if (megabytes > 0) memory.series[kind].points.push_back({{megabytes}, value_of(of.paired), name});
  }
  for (ChartPanel* panel : {&speed, &memory}) panel->series.insert(panel->series.begin(), best_line(*panel));
  if (longest > kLongName || result.configs.size() > kManyPoints) chart.columns = 1;
  chart.title = fmt::format("{} of {}", quality.title, result.model);
  chart.note =
      "Lines at points: 95 % intervals, of the quality for its difference from the base. Pareto front: no other "
      "configuration is at least as good in quality, decode speed and memory, and better in one.";
  chart.panels = {std::move(speed), std::move(memory)};
  if (shown) add_heat_panels(chart, result, *shown);
  return chart;
}

std::optional<ChartPanel> heat_panel(const ConfigResult& config, const std::string& suite, const std::string& metric) {
  ChartPanel out;
  HeatMap map;
  const auto place = [](std::vector<std::string>& in, const std::string& name) {
    const auto found = std::ranges::find(in, name);
    if (found != in.end()) return static_cast<size_t>(found - in.begin());
    in.push_back(name);
    return in.size() - 1;
  };
  for (const SuiteFigure& figure : config.quality) {
    const size_t at = figure.metric.find('@'), slash = figure.metric.find('/', at);
    if (figure.suite != suite || at == std::string::npos || slash == std::string::npos || figure.items == 0 ||
        figure.metric.substr(0, at) != metric)
      continue;
    const size_t column = place(map.columns, figure.metric.substr(at + 1, slash - at - 1));
    const size_t row = place(map.rows, figure.metric.substr(slash + 1));
    map.values.resize(map.rows.size());
    map.values[row].resize(std::max(map.values[row].size(), column + 1), NAN);
    map.values[row][column] = figure.interval.value;
  }
  if (map.rows.empty()) return std::nullopt;
  out.title = config.name;
  out.x.title = "length";
  out.y.title = "depth";
  out.heat = std::move(map);
  return out;
}

}  // namespace millrace
