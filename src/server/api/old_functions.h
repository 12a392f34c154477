// Converts other forms of tool calls in OpenAI's API to `tools` and `tool_calls` of functions: the old `functions` and
// `function_call`, messages with the role "function", and calls of custom tools.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// functions, function_call.
std::vector<Field> old_function_fields();

// Returns the messages with only `tool_calls` of functions and results with the role "tool". Malformed parts are left
// for the caller to reject.
Json with_tool_calls(const Json& messages);

}  // namespace millrace
