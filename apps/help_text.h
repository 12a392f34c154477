// Texts of --help and --help-all: the purpose of a command in one sentence, its usage and examples, then its flags.
// --help shows the flags that most users need, --help-all every flag in groups. Types and ranges are in words, lines of
// at most 100 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace millrace {

// For the program and, through it, for every command that is added later.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// "N, 0 to 1024", "TEXT", "text or json"; "": a switch.
std::string value_in_words(const CLI::Option& option);

// The text of a flag, with its range, its default and whether it is required.
std::string flag_text(const CLI::Option& option);

// The words after "millrace": the command's name, its arguments and required flags.
std::string usage_text(const CLI::App& command);

// The parts of a command's footer: the paragraph that begins with "Examples:", and the text around it.
struct HelpFooter {
  std::string examples, notes;  // lines of at most 100 columns, without a line end at the end
};
HelpFooter help_footer(const std::string& footer);

}  // namespace millrace
