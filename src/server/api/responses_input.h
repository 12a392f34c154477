// Converts the input items of /v1/responses to messages of a chat template.
#pragma once

#include <optional>
#include <string>

#include "server/api/api_error.h"
#include "server/json.h"

namespace millrace {

// Adds `input`, a text or a list of items, to `messages`. `where` is its name in error messages.
std::optional<ApiError> add_input_items(const Json& input, Json& messages, const std::string& where);

// Adds the items in stored form: each has an id, and plain text becomes a message.
void add_stored_items(const Json& input, const std::string& id, Json& items);

}  // namespace millrace
