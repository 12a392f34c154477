// Checks shared by the APIs: which message roles exist, and that every tool message answers an earlier call.
#pragma once

#include "server/api/api.h"

namespace millrace {

// Accepts OpenAI's and Ollama's roles; "function" is the old name of "tool". `where` is for errors: "messages[3].role".
std::optional<ApiError> check_role(const std::string& where, const std::string& role);

// Checks that each tool message names an earlier call by its id, in `messages` in OpenAI's form from `first` on.
// `field` and `id` are the API's names for the messages and the id.
std::optional<ApiError> check_tool_messages(const Json& messages, size_t first, const char* field, const char* id);

}  // namespace millrace
