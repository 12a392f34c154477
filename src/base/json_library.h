// <nlohmann/json.hpp> without the definition of its operator ""_json, which no code here uses. The operator calls
// nlohmann::json::parse, so every file that includes the library would compile the parser of nlohmann::json, even with
// a precompiled header; that costs half a second to a second per file. The macro turns the operator's body into the
// body of a function template that is never instantiated. The macro has no effect on versions after 3.11.2, which write
// the operator's name without a space.
#pragma once

#define _json(text, size) \
  _json(text, size);      \
  template <typename>     \
  nlohmann::json unused_json_literal(text, size)
#include <nlohmann/json.hpp>
#undef _json
