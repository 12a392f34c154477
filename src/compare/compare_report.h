// A comparison as a single HTML file: its table, a picture for the first figure of every suite, heat maps, and the
// figures of groups. It loads nothing from elsewhere and contains no scripts.
#pragma once

#include <string>

#include "base/result.h"
#include "compare/result.h"

namespace millrace {

// Errors: unsupported (pictures cannot be drawn on this machine).
Result<std::string> compare_html(const CompareResult& result, const std::string& command);

}  // namespace millrace
