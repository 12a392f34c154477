// Rules for the messages of every API: which roles exist, and that a tool message answers an earlier call.
#pragma once

#include "server/api/api.h"

namespace millrace {

// Of OpenAI's roles and Ollama's; "function" is the old name of a tool. `where` is for messages: "messages[3].role".
std::optional<ApiError> check_role(const std::string& where, const std::string& role);

// Each tool's message names a call of an earlier one by its id: of `messages` in OpenAI's form, from `first` on.
// `field` and `id` are the API's words for them.
std::optional<ApiError> check_tool_messages(const Json& messages, size_t first, const char* field, const char* id);

}  // namespace millrace
