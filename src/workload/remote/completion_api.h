// The HTTP completion APIs of servers: request bodies and streamed answers.
#pragma once

#include <string>
#include <string_view>

#include "workload/request.h"

namespace millrace {

enum class CompletionApi {
  completions,  // OpenAI's POST /v1/completions, the prompt as token ids or text
  chat,         // OpenAI's POST /v1/chat/completions, the prompt as one message of a user
  llama,        // llama-server's native POST /completion
};
Result<CompletionApi> find_completion_api(const std::string& name);  // completions, chat, llama

struct CompletionStyle {
  CompletionApi api = CompletionApi::completions;
  std::string model;          // "": the server's only model
  bool text_prompts = false;  // words instead of token ids; always used for chat
  int64_t vocab = 32000;      // token ids are below this
};

std::string completion_path(CompletionApi api);
// The body: greedy, streamed, exactly the recorded number of tokens.
std::string completion_body(const CompletionStyle& style, const WorkloadRequest& request);

// About one word per token; equal tokens give equal words.
std::string words_of(const std::vector<TokenId>& tokens);

// The content of one event of the answer.
struct CompletionChunk {
  bool token = false;                                                  // one or more tokens were received
  bool done = false;                                                   // the last event
  bool finished = false;                                               // a finish reason was given
  int64_t prompt_tokens = -1, cached_tokens = -1, output_tokens = -1;  // if the server reports them
  std::string error;
};
// Accepts any bytes; if they are not JSON of the API's form, the chunk has an error.
CompletionChunk read_completion_chunk(CompletionApi api, std::string_view data);

// The message in an error body, cut to a line of 120 characters; "" if there is none.
std::string completion_error(std::string_view body);

}  // namespace millrace
