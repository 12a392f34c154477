// Reads the flags of a running command again, from the same command line and the current config file.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

// Flags and their values as given: "--port": {"8080"}.
using GivenFlags = std::map<std::string, std::vector<std::string>>;

GivenFlags given_flags(const CLI::App& command);

// Declares all commands and the common flags.
void declare_commands(CLI::App& app);

// `declare` adds the command `name` with its flags and a callback that does nothing. Errors (user): parse errors.
Result<GivenFlags> parse_again(const char* name, const std::function<void(CLI::App&)>& declare);

}  // namespace millrace
