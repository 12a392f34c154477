// Items of /v1/responses to messages of a chat template.
#pragma once

#include <optional>
#include <string>

#include "server/api/api_error.h"
#include "server/json.h"

namespace millrace {

// Adds what `input` holds, a text or a list of items, to `messages`. `where` names it in errors.
std::optional<ApiError> add_input_items(const Json& input, Json& messages, const std::string& where);

// The items as they are stored and listed: each with an id, a text as a message.
void add_stored_items(const Json& input, const std::string& id, Json& items);

}  // namespace millrace
