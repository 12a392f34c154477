// Converts a Lark grammar, as used by custom tools, to one regex for the whole text. This is only possible without
// recursion. Recursive rules and %ignore are rejected with an error that names them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

// Errors: user (the message names the fault in the grammar and its place).
Result<std::string> lark_to_regex(std::string_view grammar);

}  // namespace millrace
