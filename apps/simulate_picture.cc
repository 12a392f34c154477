#include "simulate_picture.h"

#include <fmt/format.h>

#include "workload/load_picture.h"

namespace millrace {

Chart simulation_chart(const std::string& title, int64_t requests, std::vector<SimulatedTimes> runs) {
  std::vector<ChartSeries> ttft, gaps, e2e;
  ChartPanel output{.title = "Output", .names = SeriesNames::none};
  output.x = {.unit = "tokens/s", .better = BetterEnd::high};
  ChartSeries bars{.mark = ChartMark::bars, .sign = -1};  // the colours belong to the policies
  for (size_t i = 0; i < runs.size(); ++i) {
    SimulatedTimes& run = runs[i];
    const int sign = static_cast<int>(i);
    for (double& gap : run.gaps) gap *= 1000;
    ttft.push_back(distribution_of(run.policy, std::move(run.ttft), sign));
    gaps.push_back(distribution_of(run.policy, std::move(run.gaps), sign));
    e2e.push_back(distribution_of(run.policy, std::move(run.e2e), sign));
    output.categories.push_back(run.policy);
    bars.points.push_back({{run.tokens_per_second}, {static_cast<double>(i)}, ""});
  }
  output.series = {std::move(bars)};
  ChartPanel between = distribution_panel("Time between tokens", "ms", std::move(gaps));
  between.y.unit = "% of the tokens";
  Chart chart{.title = title, .columns = 2, .plot_height = 230};
  chart.subtitle = fmt::format("{} requests on a virtual clock", requests);
  chart.panels = {distribution_panel("Time to first token", "s", std::move(ttft)), std::move(between),
                  distribution_panel("Whole request", "s", std::move(e2e)), std::move(output)};
  return chart;
}

}  // namespace millrace
