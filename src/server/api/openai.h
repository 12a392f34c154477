// What the parts of the OpenAI API share.
#pragma once

#include "server/api/api.h"

namespace millrace {

extern const AnswerFormat kChatCompletions;
extern const AnswerFormat kCompletions;

std::vector<Field> chat_completion_fields();
Json openai_error_json(const ApiError& error);
Handled count_input_tokens(Call& call);  // of a conversation
std::vector<Field> completion_fields();
std::optional<ApiError> prepare_chat_completion(const Json& body, GenerationRequest& ask);
std::optional<ApiError> prepare_completion(const Json& body, GenerationRequest& ask);
// What whole answers and their chunks have in common; `object` is their type.
Json openai_envelope(const Answer& answer, const char* object, Json choices);
// Most chunks differ in one text. `choice` is its element of "choices", written out, between these two: "data: {" to
// "choices": [", and the end of the event. Not for chunks that count usage so far.
const std::string& openai_chunk_head(Answer& answer, const char* object);
const char* openai_chunk_tail(const Answer& answer);
Json openai_usage(const Answer& answer);
const char* openai_finish(const Answer& answer, const Choice& choice);
Json openai_logprob(const Answer& answer, const ChosenToken& chosen);  // with its bytes and those beside it
Json openai_stop_reason(const Choice& choice);                         // vLLM's: the stop string or token; null: none
Json openai_prompt_logprobs(const Answer& answer, size_t prompt);      // vLLM's

// OpenAI's messages to those of a chat template: parts of text are joined, "developer" becomes "system".
std::optional<ApiError> read_messages(const Json& value, GenerationRequest& ask);

}  // namespace millrace
