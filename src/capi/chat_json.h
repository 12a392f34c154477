// Conversations as JSON texts from outside.
#pragma once

#include <span>
#include <string>

#include "millrace/model.h"
#include "prompt/document_prompt.h"

namespace millrace {

// Renders the messages as chat_text() does. Errors: user (not JSON, or no array of objects), and those of chat_text().
Result<std::string> chat_of_json(const LanguageModel& model, const char* messages, bool add_generation_prompt);

// Returns the tokens of the rendered messages, after which the answer begins. `documents`: texts at the beginning of
// the last user message. Errors: user (a document is empty), and those of chat_of_json() and marked_prompt().
Result<DocumentPrompt> chat_prompt(const LanguageModel& model, const char* messages,
                                   std::span<const std::string> documents);

}  // namespace millrace
