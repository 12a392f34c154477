// The fields of each API that its endpoint does not implement. They are rejected by name, or ignored with a reason.
// Together with the implemented fields they cover the whole API; tests/regressions/known_fields_test.cc has the APIs'
// own lists.
#pragma once

#include "server/api/schema.h"

namespace millrace {

std::vector<Field> openai_account_fields();          // the client's user, and OpenAI's billing, storage and caching
std::vector<Field> other_chat_fields();              // chat: OpenAI's, vLLM's and llama-server's
std::vector<Field> other_completion_fields();        // fields of text completion
std::vector<Field> other_llama_completion_fields();  // llama-server's own endpoints
std::vector<Field> other_response_fields();
std::vector<Field> other_response_count_fields();  // /v1/responses/input_tokens
std::vector<Field> other_message_fields();         // Anthropic's
std::vector<Field> other_message_count_fields();
std::vector<Field> other_ollama_fields(bool generate);
std::vector<Field> other_ollama_options();
std::vector<Field> other_embedding_fields();

// llama-server's names for sampling options that have other names here.
std::vector<Field> llama_sampling_fields();

}  // namespace millrace
