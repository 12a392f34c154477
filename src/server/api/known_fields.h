// The fields that each API knows beside those that its endpoint implements: refused by name, or accepted without effect
// with the reason. With the implemented ones they are all fields of the API; tests/regressions/known_fields_test.cc has
// the APIs' own lists.
#pragma once

#include "server/api/schema.h"

namespace millrace {

std::vector<Field> other_chat_fields();              // OpenAI's, vLLM's and llama-server's of a conversation
std::vector<Field> other_completion_fields();        // the same of a text
std::vector<Field> other_llama_completion_fields();  // llama-server's own endpoints
std::vector<Field> other_response_fields();
std::vector<Field> other_response_count_fields();  // /v1/responses/input_tokens
std::vector<Field> other_message_fields();         // Anthropic's
std::vector<Field> other_message_count_fields();
std::vector<Field> other_ollama_fields(bool generate);
std::vector<Field> other_ollama_options();
std::vector<Field> other_embedding_fields();

// llama-server's names of sampling options that have others here.
std::vector<Field> llama_sampling_fields();

}  // namespace millrace
