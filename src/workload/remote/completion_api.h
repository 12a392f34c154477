// Creates request bodies and parses streamed answers for the completion APIs of HTTP servers.
#pragma once

#include <string>
#include <string_view>

#include "workload/request.h"

namespace millrace {

enum class CompletionApi {
  completions,  // OpenAI's POST /v1/completions; the prompt is token ids or text
  chat,         // OpenAI's POST /v1/chat/completions; the prompt is one user message
  llama,        // llama-server's native POST /completion
};
Result<CompletionApi> find_completion_api(const std::string& name);  // completions, chat, llama

struct CompletionStyle {
  CompletionApi api = CompletionApi::completions;
  std::string model;          // "": the server's only model
  bool text_prompts = false;  // send words instead of token ids; always done for chat
  int64_t vocab = 32000;      // token ids are below this
};

std::string completion_path(CompletionApi api);
// Returns the body of a request for greedy decoding, a streamed answer, and exactly the recorded number of tokens.
std::string completion_body(const CompletionStyle& style, const WorkloadRequest& request);

// Returns about one word per token; equal tokens give equal words.
std::string words_of(const std::vector<TokenId>& tokens);

// The content of one event of the answer.
struct CompletionChunk {
  bool token = false;                                                  // the event has one or more tokens
  bool done = false;                                                   // it is the last event
  bool finished = false;                                               // it has a finish reason
  int64_t prompt_tokens = -1, cached_tokens = -1, output_tokens = -1;  // if the server reports them
  std::string error;
};
// Parses the data of one event. Accepts any bytes; if they are not valid JSON for the API, the chunk has an error.
CompletionChunk read_completion_chunk(CompletionApi api, std::string_view data);

// Returns the message of an error body, in one line of at most 120 characters; "" if there is no message.
std::string completion_error(std::string_view body);

}  // namespace millrace
