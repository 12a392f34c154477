// Conversations as JSON texts from outside.
#pragma once

#include <string>
#include <vector>

#include "millrace/model.h"

namespace millrace {

// Renders the messages as chat_text() does. Errors: user (not JSON, or no array of objects), and those of chat_text().
Result<std::string> chat_of_json(const LanguageModel& model, const char* messages, bool add_generation_prompt);

// Returns the tokens of the rendered messages, after which the answer begins.
Result<std::vector<TokenId>> chat_tokens(const LanguageModel& model, const char* messages);

}  // namespace millrace
