// The table of rules and the facts of all members as a page of documentation: docs/compatibility.md, which
// `millrace techniques --matrix` prints.
#pragma once

#include <string>

namespace millrace {

std::string compatibility_page();

}  // namespace millrace
