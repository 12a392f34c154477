// Pictures of a comparison: quality against decode speed and memory with the Pareto front marked, and heat maps of
// figures by two numbers (length and depth of a needle).
#pragma once

#include <optional>
#include <string>

#include "compare/result.h"
#include "picture/picture.h"

namespace millrace {

// `figure`: number of the quality figure. Configurations without a value are only listed. Whiskers are 95 % intervals.
Picture front_picture(const CompareResult& result, size_t figure);

// Picture of the suite's groups "ROW/COLUMN" in one configuration; none if it has no such groups.
std::optional<Picture> heat_map(const ConfigResult& config, const std::string& suite, const std::string& metric);

}  // namespace millrace
