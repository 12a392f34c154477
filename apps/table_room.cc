#include "table_room.h"

#include <fmt/format.h>

#include "terminal/display_width.h"

namespace millrace {

void add_wide_to(CLI::App* command, bool* wide, const std::vector<TableColumn>& columns) {
  add_wide_to(command, wide, drop_order(columns));
}

void add_wide_to(CLI::App* command, bool* wide, const std::string& order) {
  command->add_flag("--wide", *wide,
                    "Print every column. Without it, a narrow terminal drops, in this order: " + order);
}

TableRoom table_room(bool wide, const char* json) {
  return {wide ? 0 : terminal_columns(), fmt::format("--wide or {}", json)};
}

void print_wrapped(std::string_view text, size_t columns, size_t indent) {
  fmt::print("{:{}}{}\n", "", indent, hanging_text(text, indent, columns));
}

void print_fact(std::string_view label, std::string_view text, size_t columns, size_t label_columns) {
  constexpr size_t kNarrowestFact = 24, kIndent = 2;
  if (columns > 0 && columns < label_columns + 1 + kNarrowestFact) {
    if (!label.empty()) fmt::print("{}\n", label);
    print_wrapped(text, columns, kIndent);
  } else {
    fmt::print("{:<{}} {}\n", label, label_columns, hanging_text(text, label_columns + 1, columns));
  }
}

}  // namespace millrace
