// What one request may ask at most, whatever API it came by: an operator's bounds, within those that the schema and the
// engine have by themselves.
#pragma once

#include <cstdint>
#include <optional>

#include "server/api/api_error.h"
#include "server/generation/generation_request.h"

namespace millrace {

struct RequestLimits {
  int64_t answers = 512;      // of a request, over all its prompts; and written for best_of, and beams
  int64_t max_tokens = 0;     // of an answer; what asks for more gets so many. 0: as the context has it
  int64_t prompt_tokens = 0;  // refused above; 0: as the context has it
  int64_t messages = 10000;   // of a conversation
  int64_t stops = 64;         // stop strings
  int64_t stop_bytes = 4096;  // of one of them
  int64_t constraint_bytes = int64_t{1} << 20;  // of a schema, grammar, regex or list of choices
  int64_t logprobs = 100;                       // likeliest tokens beside each
};

// Before anything is tokenized.
std::optional<ApiError> check_limits(const RequestLimits& limits, const GenerationRequest& ask);
// Once the prompts' tokens are there.
std::optional<ApiError> check_prompt_limits(const RequestLimits& limits, GenerationRequest& ask);

}  // namespace millrace
