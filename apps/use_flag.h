// --use FAMILY=NAME[:key=value,...]: chooses techniques, on the command line and as `use = [...]` in config files.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "techniques/technique_use.h"

namespace millrace {

struct UseFlag {
  std::vector<std::string> texts;
  std::string command;  // where it is used: "run"

  void add_to(CLI::App* app, const std::string& command_name);
  // Errors (user): as parse_uses(), after "--use ".
  Result<std::vector<TechniqueUse>> get() const;
};

// The choice that a flag stands for: `--policy vtc` for policy=vtc. Nothing if the flag's value is not valid: the
// command reports the error.
std::vector<TechniqueUse> use_of_flag(const std::string& family, const std::string& value, const std::string& command);

// An error if the flag contradicts --use.
Result<void> check_flag_against(const std::vector<TechniqueUse>& uses, const std::string& family,
                                const std::string& flag, const std::string& value, const std::string& command);

}  // namespace millrace
