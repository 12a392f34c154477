// Turns a conversation with its tools and options into a prompt, a constraint and the way the answer is parsed.
#pragma once

#include <optional>

#include "millrace/model.h"
#include "server/api/api_error.h"
#include "server/generation/generation_request.h"

namespace millrace {

// Charges `bytes` of text, which is about to be tokenized, to the model's account; released with params.text_work.
std::optional<ApiError> charge_text(const GenerationRequest& params, size_t bytes);

// Replaces params.messages by one prompt of text and tokens, and extends params.request.constraint to the whole answer,
// including thinking and tool calls.
std::optional<ApiError> make_conversation(const LanguageModel& model, GenerationRequest& params);

// Converts params.bad_words to tokens, with and without a leading space.
std::optional<ApiError> make_bad_words(const LanguageModel& model, GenerationRequest& params);
// Converts params.prediction to tokens.
std::optional<ApiError> make_prediction(const LanguageModel& model, GenerationRequest& params);

// Removes the beginning of the prompt if the request asks for it, and counts the removed tokens.
void truncate_prompt(GenerationRequest& params, AskedPrompt& prompt, int64_t context);

// Converts an error about the request's constraint to a bad_request that names its field; other errors are unchanged.
ApiError constraint_error(const GenerationRequest& params, const ApiError& error);

}  // namespace millrace
