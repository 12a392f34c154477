// The ways in which servers are asked for a completion over HTTP, and what their streamed answers say.
#pragma once

#include <string>
#include <string_view>

#include "workload/request.h"

namespace millrace {

enum class CompletionApi {
  completions,  // OpenAI's POST /v1/completions, the prompt as token ids or text
  chat,         // OpenAI's POST /v1/chat/completions, the prompt as one message of a user
  llama,        // llama-server's own POST /completion
};
Result<CompletionApi> find_completion_api(const std::string& name);  // completions, chat, llama

struct CompletionStyle {
  CompletionApi api = CompletionApi::completions;
  std::string model;          // "": the server's only one
  bool text_prompts = false;  // words instead of token ids; chat has no other way
  int64_t vocab = 32000;      // token ids are below that
};

std::string completion_path(CompletionApi api);
// The body: greedy, streamed, exactly the recorded number of tokens.
std::string completion_body(const CompletionStyle& style, const WorkloadRequest& request);

// About one word a token; equal tokens are equal words.
std::string words_of(const std::vector<TokenId>& tokens);

// What one event of the answer says.
struct CompletionChunk {
  bool token = false;                                                  // one or more came
  bool done = false;                                                   // the last event
  bool finished = false;                                               // a reason for the end was given
  int64_t prompt_tokens = -1, cached_tokens = -1, output_tokens = -1;  // where the server counts them
  std::string error;
};
// Any bytes are a chunk; what is no JSON of the API's form is one with an error.
CompletionChunk read_completion_chunk(CompletionApi api, std::string_view data);

// The message in an error's body, cut to a line of 120 characters; "" when there is none.
std::string completion_error(std::string_view body);

}  // namespace millrace
