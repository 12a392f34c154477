// Charts of a load that was sent or simulated: figures over the time of the run, and their distributions.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "picture/chart.h"
#include "workload/metrics.h"

namespace millrace {

// Returns eight panels: times to the first token and between tokens, tokens, requests in flight and arrivals over time;
// and distributions of the times to the first token, per output token, and of whole requests.
std::vector<ChartPanel> load_panels(std::span<const RequestRecord> records, const LoadMetrics& metrics);

// Returns one series of a distribution: the share of the values, in percent, that are at most x.
ChartSeries distribution_of(const std::string& name, std::vector<double> values, int sign);

// Returns a panel for distributions of a time. `unit`: of its values.
ChartPanel distribution_panel(const std::string& title, const std::string& unit, std::vector<ChartSeries> series);

}  // namespace millrace
