// The operator's limits for a single request, independent of its API. The schema and the engine have their own limits
// in addition.
#pragma once

#include <cstdint>
#include <optional>

#include "server/api/api_error.h"
#include "server/generation/generation_request.h"

namespace millrace {

struct RequestLimits {
  int64_t answers = 512;                        // per request over all its prompts, including best_of and beams
  int64_t max_tokens = 0;                       // per answer; larger requests are capped. 0: limited by the context
  int64_t prompt_tokens = 0;                    // longer prompts are rejected; 0: limited by the context
  int64_t messages = 10000;                     // per conversation
  int64_t stops = 64;                           // stop strings
  int64_t stop_bytes = 4096;                    // per stop string
  int64_t constraint_bytes = int64_t{1} << 20;  // size of a schema, grammar, regex or list of choices
  int64_t logprobs = 100;                       // alternatives per token
};

// Checks that need no tokenization.
std::optional<ApiError> check_limits(const RequestLimits& limits, const GenerationRequest& params);
// Checks after tokenization; caps max_tokens.
std::optional<ApiError> check_prompt_limits(const RequestLimits& limits, GenerationRequest& params);

}  // namespace millrace
