// Grammars in Lark's language, as custom tools have them, to one regex for all of the text. That can be done where no
// rule leads back to itself; such grammars, and %ignore, are refused by name.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

// Errors: user (the grammar: what is wrong and where).
Result<std::string> lark_to_regex(std::string_view grammar);

}  // namespace millrace
