// A comparison as a single HTML file: its table, a picture for the first figure of every suite, heat maps, and the
// figures of groups. It loads nothing from elsewhere and contains no scripts.
#pragma once

#include <string>

#include "compare/result.h"

namespace millrace {

std::string compare_html(const CompareResult& result, const std::string& command);

}  // namespace millrace
