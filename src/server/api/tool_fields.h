// Reads the APIs' tool fields into a GenerationRequest.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// OpenAI's: tools, tool_choice, parallel_tool_calls.
std::vector<Field> tool_fields();
// Fields of tools in /v1/responses, where a function's name and parameters are next to its type.
std::vector<Field> flat_tool_fields();
// Ollama's: only tools, and the list may be empty.
Field ollama_tools_field();

// {"name", "description", "parameters", "strict"}
std::optional<ApiError> add_function(GenerationRequest& params, const std::string& where, const Json& function);
// The name by which the model knows a tool of a namespace. Answers are named from the request's own list, because names
// may contain the separator.
std::string flat_tool_name(const std::string& space, const std::string& name);
// Sets the call's "name", and its "namespace" if the request lists the tool in one.
void name_call(const GenerationRequest& params, const std::string& name, Json& call);
// Adds a tool. `where` is its name in error messages.
std::optional<ApiError> add_tool(GenerationRequest& params, const std::string& where, const std::string& name,
                                 const std::string& description, Json parameters, bool strict);
// Checks that the tool options are consistent. Call after all fields are read.
std::optional<ApiError> check_tools(GenerationRequest& params);

// Thinking options: reasoning_effort, reasoning_format, include_reasoning, enable_thinking, thinking_token_budget.
std::vector<Field> reasoning_fields();
Field verbosity_field(const std::string& name);  // low, medium, high
// Sets the template's variables; `effort` is "none" to "high".
void set_reasoning_effort(GenerationRequest& params, const std::string& effort);

}  // namespace millrace
