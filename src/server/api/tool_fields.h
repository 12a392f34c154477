// Tools as the APIs give them, to those of an GenerationRequest.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// OpenAI's: tools, tool_choice, parallel_tool_calls.
std::vector<Field> tool_fields();
// ... of /v1/responses, where a function's name and parameters lie beside its type.
std::vector<Field> flat_tool_fields();
// Ollama's: tools alone; an empty list is none.
Field ollama_tools_field();

// {"name", "description", "parameters", "strict"}
std::optional<ApiError> add_function(GenerationRequest& ask, const std::string& where, const Json& function);
// Adds one. `where` names it in errors.
std::optional<ApiError> add_tool(GenerationRequest& ask, const std::string& where, const std::string& name,
                                 const std::string& description, Json parameters, bool strict);
// After all fields: whether what is wished can be had.
std::optional<ApiError> check_tools(GenerationRequest& ask);

// Thinking: reasoning_effort, reasoning_format, include_reasoning, enable_thinking, thinking_token_budget.
std::vector<Field> reasoning_fields();
// "none" to "high", for the template's variables.
void set_reasoning_effort(GenerationRequest& ask, const std::string& effort);

}  // namespace millrace
