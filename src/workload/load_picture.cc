#include "workload/load_picture.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kWindows = 60;  // of the run, for panels over time
constexpr int kMedianSign = 0, kTailSign = 1;

struct RunTimeline {
  double start = 0, width = 1;

  size_t of(double time) const {
    return static_cast<size_t>(std::clamp((time - start) / width, 0.0, static_cast<double>(kWindows) - 1));
  }
  double middle(size_t window) const { return (static_cast<double>(window) + 0.5) * width; }
};

using WindowValues = std::vector<std::vector<double>>;

// Values that the panels over time and the distributions show.
struct LoadSamples {
  WindowValues ttft = WindowValues(kWindows), itl = WindowValues(kWindows);  // seconds, milliseconds
  std::vector<double> tokens = std::vector<double>(kWindows), in_flight = tokens, arrivals = tokens;
  std::vector<double> all_ttft, all_tpot, all_e2e;
  ChartSeries each{.name = "each request", .mark = ChartMark::dots, .sign = -1};
};

void add_record(const RequestRecord& record, const RunTimeline& timeline, LoadSamples& out) {
  ++out.arrivals[timeline.of(record.arrival)];
  const double end = record.ok() ? record.tokens.back() : record.finished;
  for (size_t w = timeline.of(record.arrival); w <= timeline.of(end); ++w) {
    const double begin = timeline.start + static_cast<double>(w) * timeline.width;
    out.in_flight[w] +=
        std::max(0.0, std::min(end, begin + timeline.width) - std::max(record.arrival, begin)) / timeline.width;
  }
  if (!record.ok()) return;
  out.ttft[timeline.of(record.arrival)].push_back(record.ttft());
  out.each.points.push_back({{record.arrival - timeline.start}, {record.ttft()}, ""});
  out.all_ttft.push_back(record.ttft());
  out.all_e2e.push_back(record.e2e());
  if (record.tokens.size() > 1) out.all_tpot.push_back(record.tpot() * 1000);
  for (size_t i = 0; i < record.tokens.size(); ++i) {
    ++out.tokens[timeline.of(record.tokens[i])];
    if (i > 0) out.itl[timeline.of(record.tokens[i])].push_back((record.tokens[i] - record.tokens[i - 1]) * 1000);
  }
}

ChartSeries over_time(const std::string& name, const RunTimeline& timeline, const WindowValues& windows,
                      double Summary::*what, int sign) {
  ChartSeries out{.name = name, .sign = sign};
  for (size_t w = 0; w < windows.size(); ++w)
    if (!windows[w].empty()) out.points.push_back({{timeline.middle(w)}, {summarize(windows[w]).*what}, ""});
  return out;
}

ChartSeries rate_series(const RunTimeline& timeline, const std::vector<double>& values, double unit) {
  ChartSeries out;
  for (size_t w = 0; w < values.size(); ++w) out.points.push_back({{timeline.middle(w)}, {values[w] / unit}, ""});
  return out;
}

ChartPanel time_panel(const std::string& title, const std::string& unit, std::vector<ChartSeries> series) {
  ChartPanel out{.title = title, .series = std::move(series)};
  out.x = {.title = "time", .unit = "s", .scaling = AxisScaling::linear, .from_zero = true};
  out.y = {.unit = unit, .scaling = AxisScaling::linear, .from_zero = true};
  return out;
}

}  // namespace

ChartSeries distribution_of(const std::string& name, std::vector<double> values, int sign) {
  constexpr size_t kSteps = 200;
  std::sort(values.begin(), values.end());
  ChartSeries out{.name = name, .sign = sign};
  for (size_t i = 0; !values.empty() && i <= kSteps; ++i) {
    const double share = static_cast<double>(i) / kSteps;
    out.points.push_back({{quantile(values, share)}, {100 * share}, ""});
  }
  return out;
}

ChartPanel distribution_panel(const std::string& title, const std::string& unit, std::vector<ChartSeries> series) {
  ChartPanel out{.title = title, .series = std::move(series)};
  out.x = {.title = "at most", .unit = unit, .scaling = AxisScaling::logarithmic};
  out.y = {.unit = "% of the requests", .scaling = AxisScaling::linear, .low = 0, .high = 100};
  return out;
}

std::vector<ChartPanel> load_panels(std::span<const RequestRecord> records, const LoadMetrics& metrics) {
  RunTimeline timeline{0, std::max(metrics.seconds, 1e-9) / kWindows};
  if (!records.empty()) timeline.start = std::ranges::min_element(records, {}, &RequestRecord::arrival)->arrival;
  LoadSamples samples;
  for (const RequestRecord& record : records) add_record(record, timeline, samples);
  const auto lines = [&](const WindowValues& windows) {
    return std::vector{over_time("median", timeline, windows, &Summary::p50, kMedianSign),
                       over_time("99th percentile", timeline, windows, &Summary::p99, kTailSign)};
  };
  std::vector<ChartSeries> ttft = lines(samples.ttft);
  ttft.insert(ttft.begin(), std::move(samples.each));
  return {
      time_panel("Time to first token, by arrival", "s", std::move(ttft)),
      time_panel("Time between tokens", "ms", lines(samples.itl)),
      time_panel("Output", "tokens/s", {rate_series(timeline, samples.tokens, timeline.width)}),
      time_panel("Requests in flight", "requests", {rate_series(timeline, samples.in_flight, 1)}),
      time_panel("Arrivals", "requests/s", {rate_series(timeline, samples.arrivals, timeline.width)}),
      distribution_panel("Time to first token", "s", {distribution_of("", std::move(samples.all_ttft), kMedianSign)}),
      distribution_panel("Time per output token", "ms",
                         {distribution_of("", std::move(samples.all_tpot), kMedianSign)}),
      distribution_panel("Whole request", "s", {distribution_of("", std::move(samples.all_e2e), kMedianSign)}),
  };
}

}  // namespace millrace
