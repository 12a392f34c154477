// Reads the flags of a command that runs once more, from the same command line and the config file as it is now.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

// What flags were given as; "--port": {"8080"}.
using GivenFlags = std::map<std::string, std::vector<std::string>>;

GivenFlags given_flags(const CLI::App& command);

// Every command, and the flags that all have.
void declare_commands(CLI::App& app);

// `declare` adds the command `name` with flags that are to be filled and nothing that is to be run. Errors (user): what
// does not parse.
Result<GivenFlags> parse_again(const char* name, const std::function<void(CLI::App&)>& declare);

}  // namespace millrace
