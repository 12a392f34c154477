// How wide a command may print its tables. Without --wide, tables fit the terminal on standard output; piped tables are
// whole.
#pragma once

#include <CLI/CLI.hpp>

#include "terminal/text_table.h"

namespace millrace {

void add_wide_to(CLI::App* command, bool* wide);

// `json`: the command's flag for all figures: "--json".
TableRoom table_room(bool wide, const char* json);

}  // namespace millrace
