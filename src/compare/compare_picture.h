// Charts of a comparison: quality against decode speed and memory, with the Pareto front marked; and heat maps of a
// figure over two numbers, such as length and depth of a needle.
#pragma once

#include <optional>
#include <string>

#include "compare/result.h"
#include "picture/chart.h"

namespace millrace {

// Returns two panels for the quality figure with index `figure`, and a heat map of each configuration if the figure's
// suite has groups "COLUMN/ROW". Configurations without a value are left out. Error bars are 95 % intervals.
Chart front_chart(const CompareResult& result, size_t figure);

// Returns a heat map of the suite's groups, named "COLUMN/ROW", for one configuration; empty if the suite has no such
// groups.
std::optional<ChartPanel> heat_panel(const ConfigResult& config, const std::string& suite, const std::string& metric);

}  // namespace millrace
