// From a conversation with its tools and wishes to the prompt, and to what the answer is held to and how it is read.
#pragma once

#include <optional>

#include "millrace/model.h"
#include "server/api/api_error.h"
#include "server/generation/generation_request.h"

namespace millrace {

// Replaces ask.messages by one prompt of text and tokens; ask.request.constraint becomes what the whole answer is held
// to.
std::optional<ApiError> make_conversation(const LanguageModel& model, GenerationRequest& ask);

// ask.bad_words to tokens, with and without a space before them.
std::optional<ApiError> make_bad_words(const LanguageModel& model, GenerationRequest& ask);

// Cuts a prompt's beginning off where the request asks for that, and counts what was cut.
void truncate_prompt(GenerationRequest& ask, AskedPrompt& prompt, int64_t context);

// What a constraint of the request is refused with: a bad request that names the field, whatever the reason.
ApiError constraint_error(const GenerationRequest& ask, const ApiError& error);

}  // namespace millrace
