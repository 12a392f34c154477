#include "table_room.h"

#include <fmt/format.h>

#include "terminal/display_width.h"

namespace millrace {

void add_wide_to(CLI::App* command, bool* wide) {
  command->add_flag("--wide", *wide, "Print every column, also if the terminal is narrower");
}

TableRoom table_room(bool wide, const char* json) {
  return {wide ? 0 : terminal_columns(), fmt::format("--wide or {}", json)};
}

}  // namespace millrace
