// OpenAI's custom tools: the model writes a text for them, free or in the form of a regex or a grammar, instead of
// JSON. To the chat template and the parser they are functions with one string, `input`, which the answer hands out by
// itself.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// {"name", "description", "format"}: {"type": "text"} or {"type": "grammar", "syntax": "regex" or "lark",
// "definition"}, the latter also with "grammar": {"syntax", "definition"} as chat completions have it.
std::optional<ApiError> add_custom_tool(GenerationRequest& ask, const std::string& where, const Json& tool);

// The arguments of that function, and back. What was cut off by the answer's end gives the text so far.
std::string custom_arguments(const std::string& input);
std::string custom_input(const std::string& arguments);
bool is_custom(const GenerationRequest& ask, const std::string& name);

}  // namespace millrace
