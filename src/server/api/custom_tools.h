// OpenAI's custom tools: their input is text instead of JSON, optionally constrained by a regex or a grammar. The chat
// template and the parser see a function with one string parameter, `input`; responses return that string directly.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// {"name", "description", "format"}: {"type": "text"} or {"type": "grammar", "syntax": "regex" or "lark",
// "definition"}; for chat completions also with a nested "grammar": {"syntax", "definition"}.
std::optional<ApiError> add_custom_tool(GenerationRequest& params, const std::string& where, const Json& tool);

// Converts a custom tool's input to the function's arguments and back. Truncated arguments give the input so far.
std::string custom_arguments(const std::string& input);
std::string custom_input(const std::string& arguments);
bool is_custom(const GenerationRequest& params, const std::string& name);

}  // namespace millrace
