// The command line before CLI11 parses it: unknown commands and flags are refused by name, with a suggestion, and flags
// of other engines become millrace's own (foreign_flags.h).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

struct CheckedArguments {
  std::vector<std::string> arguments;  // with the program's name
  std::vector<std::string> notes;      // flags that were accepted and ignored, and why
  std::string command;                 // "run"; "": none is named
  bool describes = false;              // a flag such as --help, which prints a text and runs no command
};

// Errors: user (an unknown command or flag; a flag of another engine that has no equivalent).
Result<CheckedArguments> check_arguments(const CLI::App& app, const std::vector<std::string>& given);

// The options of a command, with those of its option groups.
std::vector<const CLI::Option*> all_options(const CLI::App& command);

// Makes repeatable flags of a command take one value each time: in `--stop X WORD`, WORD is not a value of --stop. For
// commands that take words without a flag; called when all flags are declared.
void take_one_value_each(CLI::App* command);

// The candidate that `word` most likely means; "": none is close.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean WORD?", or "".
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

// CLI11's message for an invalid command line, in one line that begins with the command's name.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace millrace
