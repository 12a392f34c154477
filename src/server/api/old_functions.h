// What older and newer clients of OpenAI's API send of calls that is no function of today's form, to that form: the old
// `functions` and `function_call`, messages of the role "function", and calls of custom tools.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// functions, function_call.
std::vector<Field> old_function_fields();

// Messages with `tool_calls` of functions and results of the role "tool" alone. What is malformed stays, to be refused
// by who reads it.
Json in_form_of_tools(const Json& messages);

}  // namespace millrace
