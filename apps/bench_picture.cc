#include "bench_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/ordered_json.h"
#include "bench_report.h"

namespace millrace {

void BenchPicture::add(const BenchTest& test, const nlohmann::ordered_json& record) {
  model_ = record["model_type"].get<std::string>();
  machine_ = fmt::format("{}, {}; millrace {}", record["cpu_info"].get<std::string>(), record["isa"].get<std::string>(),
                         record["version"].get<std::string>());
  const double speed = record["avg_ts"].get<double>();
  const auto& share = record["roof_fraction"];
  const double limit = share.is_number() && share.get<double>() > 0 ? speed / share.get<double>() : NAN;
  bars_.push_back({test, speed, record["stddev_ts"].get<double>(), limit});
}

// The name of the test, and what it shares with no other test.
std::string BenchPicture::category(const BenchTest& test) const {
  std::string out = bench_name(test);
  const auto differs = [&](auto member) {
    return std::ranges::any_of(bars_, [&](const Bar& bar) { return bar.test.*member != test.*member; });
  };
  if (differs(&BenchTest::kv_format)) out += " " + test.kv_format;
  if (differs(&BenchTest::threads)) out += fmt::format(", {} thread{}", test.threads, test.threads == 1 ? "" : "s");
  return out;
}

ChartPanel BenchPicture::panel(const std::string& title, bool prompt, bool generate) const {
  ChartPanel out{.title = title};
  out.x = {.title = "speed", .unit = "tokens/s", .better = BetterEnd::high};
  ChartSeries speeds{.name = "mean, with its standard deviation", .mark = ChartMark::bars};
  ChartSeries limits{.name = "limit of this machine's memory and arithmetic", .mark = ChartMark::limits, .sign = 1};
  for (const Bar& bar : bars_) {
    if ((bar.test.prompt > 0) != prompt || (bar.test.generate > 0) != generate) continue;
    const auto row = static_cast<double>(out.categories.size());
    out.categories.push_back(category(bar.test));
    speeds.points.push_back({{bar.speed, bar.speed - bar.deviation, bar.speed + bar.deviation}, {row}, ""});
    if (std::isfinite(bar.limit)) limits.points.push_back({{bar.limit}, {row}, ""});
  }
  out.series = {std::move(speeds), std::move(limits)};
  return out;
}

Chart BenchPicture::chart() const {
  Chart out{.title = model_, .subtitle = machine_, .width = 860};
  for (ChartPanel& one : std::vector{panel("Prompts", true, false), panel("Generation", false, true),
                                     panel("Prompts and generation together", true, true)})
    if (!one.categories.empty()) {
      if (!out.panels.empty()) one.names = SeriesNames::none;  // one legend for all
      out.panels.push_back(std::move(one));
    }
  return out;
}

}  // namespace millrace
