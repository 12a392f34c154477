// Heat maps of `millrace lab map`: shares of right answers by two numbers, such as length and depth of a needle.
#pragma once

#include <string>

#include "base/result.h"
#include "picture/chart.h"

namespace millrace {

// Reads {"title", "x", "y", "maps": [{"title", "rows": [TEXT], "columns": [TEXT], "values": [[NUMBER or null]]}]}.
// Errors: corrupt (the file), user (too many maps, rows or columns for one picture).
Result<Chart> heat_map_chart(const std::string& path);

}  // namespace millrace
