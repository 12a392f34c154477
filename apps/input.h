// Reads files, standard input and JSON named on the command line.
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace millrace {

// "-" is standard input. Errors: corrupt, with the name and the system's reason.
Result<std::string> read_text_file(const std::string& path);
Result<std::string> read_all(std::FILE* file, const std::string& name);

// Returns a path with "~/" at its beginning replaced by the home folder. For paths that no shell has read.
std::string at_home(const std::string& path);

// Errors: corrupt (not JSON, with the byte).
Result<nlohmann::ordered_json> read_json_file(const std::string& path);

// Checks that a file of this name can be written; called before the work whose result it will hold. "" needs none.
// `what`: the option that names the file. Errors: user.
Result<void> check_writable(const std::string& what, const std::string& path);

// One line of JSON; invalid UTF-8 is replaced.
void print_json_line(const nlohmann::ordered_json& value);

}  // namespace millrace
