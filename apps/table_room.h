// How wide a command may print its tables and texts. Without --wide, tables fit the terminal on standard output; piped
// tables are whole.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "terminal/text_table.h"

namespace millrace {

// Adds --wide, whose help says what a narrow terminal drops first. `columns`: those of the command's table, or of all
// its tables.
void add_wide_to(CLI::App* command, bool* wide, const std::vector<TableColumn>& columns);
// `order`: the same as a text, for a command whose columns depend on its flags.
void add_wide_to(CLI::App* command, bool* wide, const std::string& order);

// `json`: the command's flag for all figures: "--json".
TableRoom table_room(bool wide, const char* json);

// Prints one line of text, broken at words where the terminal ends. `columns`: width of the terminal; 0: no limit.
// `indent`: blanks before every line.
void print_wrapped(std::string_view text, size_t columns, size_t indent = 0);

// Prints a label and its text, which is broken at words and stays in its own column; where that column would be too
// narrow, it begins below the label. `label_columns`: the width of the column of labels.
void print_fact(std::string_view label, std::string_view text, size_t columns, size_t label_columns = 14);

}  // namespace millrace
