// Pictures of a comparison: quality against decode speed and memory, with the Pareto front marked; and heat maps of a
// figure over two numbers, such as length and depth of a needle.
#pragma once

#include <optional>
#include <string>

#include "compare/result.h"
#include "picture/picture.h"

namespace millrace {

// `figure`: index of the quality figure. Configurations without a value are listed, but not drawn. Whiskers are 95 %
// intervals.
Picture front_picture(const CompareResult& result, size_t figure);

// Returns a heat map of the suite's groups, named "ROW/COLUMN", for one configuration; empty if the suite has no such
// groups.
std::optional<Picture> heat_map(const ConfigResult& config, const std::string& suite, const std::string& metric);

}  // namespace millrace
