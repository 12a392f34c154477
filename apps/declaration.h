// The command line as data: subcommands and their options, read from CLI11's declaration. Completion scripts and the
// manual page are generated from it, so that they always agree with --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace millrace {

struct DeclaredOption {
  std::vector<std::string> names;  // "-m", "--model"
  std::string value;               // type of the value: "TEXT", "PATH"; "": a flag
  std::string help;
  std::vector<std::string> choices;  // allowed values, if listed
  bool file = false;                 // takes a path
};

struct DeclaredCommand {
  std::string name, summary, examples;
  std::vector<DeclaredOption> options;
};

// The program itself first, with an empty name.
std::vector<DeclaredCommand> declared_commands(const CLI::App& app);

void add_completion_command(CLI::App& app);
void add_man_command(CLI::App& app);

}  // namespace millrace
