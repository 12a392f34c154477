// CompletionCall: one request of the check of exactness to a server with OpenAI's API. Only standard fields are sent,
// except for those that ask a server not to use its prefix cache.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "workload/remote/completion_api.h"

namespace millrace {

struct CompletionCall {
  std::string prompt;
  int64_t max_tokens = 24;
  double temperature = 0;
  int64_t seed = -1;  // -1: none is sent
  bool stream = false;
  bool uncached = false;               // the server must not use a cached prefix, if it knows the fields for that
  std::chrono::milliseconds delay{0};  // time between the start of the batch and this request
};

// Properties of the server that decide how a call is written.
struct CallStyle {
  CompletionApi api = CompletionApi::completions;  // completions or chat
  std::string model;                               // "": the field is left out
  int64_t top_logprobs = 3;    // number of likeliest tokens at each position; -1: no log-probabilities are requested
  bool can_skip_cache = true;  // the server accepts cache_prompt and cache_salt
};

// Returns the JSON body.
std::string call_body(const CallStyle& style, const CompletionCall& call);
// Returns a curl command that sends the call to `server`, for example "http://localhost:8000". `with_key`: the command
// reads the key from MILLRACE_API_KEY.
std::string curl_command(const std::string& server, const CallStyle& style, const CompletionCall& call, bool with_key);

}  // namespace millrace
