// The command line as data: subcommands and their options, read off CLI11's declaration. Completion scripts and the
// manual page are printed from it, so that they cannot say anything else than --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace millrace {

struct DeclaredOption {
  std::vector<std::string> names;  // "-m", "--model"
  std::string value;               // what follows: "TEXT", "PATH"; "": a flag
  std::string help;
  std::vector<std::string> choices;  // values that it takes, where they are listed
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
