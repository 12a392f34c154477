// Shared by the endpoints of OpenAI's API.
#pragma once

#include <span>

#include "server/api/api.h"

namespace millrace {

extern const AnswerFormat kChatCompletions;
extern const AnswerFormat kCompletions;

std::vector<Field> chat_completion_fields();
Json openai_error_json(const ApiError& error);
Handled count_input_tokens(Call& call);  // for a conversation
std::vector<Field> completion_fields();
std::optional<ApiError> prepare_chat_completion(const Json& body, GenerationRequest& params);
std::optional<ApiError> prepare_completion(const Json& body, GenerationRequest& params);
// The fields shared by complete responses and stream chunks; `object` is their type.
Json openai_envelope(const Answer& answer, const char* object, Json choices);
// Fast path: most chunks differ only in one text. The head runs from "data: {" to "choices": [", the tail ends the
// event; the caller writes the element of "choices" between them. Not for chunks with continuous usage.
const std::string& openai_chunk_head(Answer& answer, const char* object);
const char* openai_chunk_tail(const Answer& answer);
Json openai_usage(const Answer& answer);
const char* openai_finish(const Answer& answer, const Choice& choice);
// A token with its bytes and, unless `top` is false, the most likely tokens.
void append_openai_logprob(std::string& out, const Answer& answer, const ChosenToken& chosen, bool top = true);
// The log-probabilities of all `tokens`, which must live until the text is written.
Json openai_logprobs(Answer& answer, std::span<const ChosenToken> tokens);
Json openai_stop_reason(const Choice& choice);               // vLLM's field: the stop string or token, or null
Json openai_prompt_logprobs(Answer& answer, size_t prompt);  // vLLM's field

// Converts OpenAI's messages to those of a chat template: joins text parts, and maps "developer" to "system".
std::optional<ApiError> read_messages(const Json& value, GenerationRequest& params);

}  // namespace millrace
