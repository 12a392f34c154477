// A file for keys and values that has no name: its space is free again when the process ends, however it ends.
#pragma once

#include <string>

namespace millrace {

// Opens such a file in `folder`. Returns -1 with errno set.
int open_unnamed_file(const std::string& folder);

}  // namespace millrace
