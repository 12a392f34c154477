// Texts of --help and --help-all. --help shows the flags that most users need, with examples; --help-all shows every
// flag in groups. Types and ranges are in words, lines of at most 100 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace millrace {

// For the program and, through it, for every command that is added later.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// "N, 0 to 1024", "TEXT", "text or json"; "": a switch.
std::string value_in_words(const CLI::Option& option);

}  // namespace millrace
