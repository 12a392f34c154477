// <nlohmann/json.hpp> without the definition of its operator ""_json. That operator calls nlohmann::json::parse, so
// every file that includes the library compiles the parser of nlohmann::json, even through a precompiled header: half a
// second to a second a file. No code here uses the operator. The macro turns its body into the body of a function
// template, which is never instantiated. Versions after 3.11.2 write the operator's name without a space, so the macro
// does not apply to them.
#pragma once

#define _json(text, size) \
  _json(text, size);      \
  template <typename>     \
  nlohmann::json unused_json_literal(text, size)
#include <nlohmann/json.hpp>
#undef _json
