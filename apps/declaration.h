// The command line as data: subcommands and their options, read from CLI11's declaration. Completion scripts and the
// manual page are generated from it, so that they always agree with --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/technique.h"

namespace millrace {

struct DeclaredOption {
  std::vector<std::string> names;  // "-m", "--model"
  std::string value;               // type of the value: "TEXT", "PATH"; "": a flag
  std::string help;
  std::string details;               // help with range, default and whether it is required
  std::string group;                 // heading in --help-all: "KV cache"
  std::vector<std::string> choices;  // allowed values, if listed
  std::string family;                // takes a member of this family with its options: NAME[:key=value,...]
  bool technique = false;            // takes FAMILY=NAME[:key=value,...]
  bool file = false;                 // takes a path
  bool model = false;                // takes a model: a path, or a name that `millrace list --names` prints
};

struct DeclaredCommand {
  std::string name, summary, examples, notes;
  std::string usage;                  // the words after "millrace"
  std::string group;                  // heading in --help: "Measure"
  std::vector<DeclaredOption> words;  // arguments without a flag
  std::vector<DeclaredOption> options;
  std::vector<std::string> actions;  // values of the first argument, if listed: generate, check
  bool takes_model = false;          // as its first argument
};

// The program itself first, with an empty name. A command of a command is named as it is typed: "trace cache".
std::vector<DeclaredCommand> declared_commands(const CLI::App& app);

// Techniques that an engine can use, the passes of `compress`, the suites of `compare`, and the trace formats that
// `replay` and `simulate` read.
std::vector<TechniqueInfo> listed_techniques();

void add_completion_command(CLI::App& app);
void add_man_command(CLI::App& app);

}  // namespace millrace
