// Manual pages in roff, from the command line's declaration: millrace(1), and one page for each command.
#pragma once

#include <string>
#include <vector>

#include "declaration.h"

namespace millrace {

// Returns true for commands with a page of their own. Commands of commands, such as "trace cache", are described on the
// page of their command.
bool has_page(const DeclaredCommand& command);

// `commands`: as declared_commands() returns them.
std::string program_page(const std::vector<DeclaredCommand>& commands);
std::string command_page(const std::vector<DeclaredCommand>& commands, const std::string& name);

}  // namespace millrace
