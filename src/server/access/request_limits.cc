#include "server/access/request_limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

std::optional<ApiError> check_limits(const RequestLimits& limits, const GenerationRequest& params) {
  const Request& request = params.request;
  if (params.messages.is_array() && static_cast<int64_t>(params.messages.size()) > limits.messages)
    return ApiError::bad("messages", fmt::format("at most {}, got {}", limits.messages, params.messages.size()));
  if (static_cast<int64_t>(request.stop.size()) > limits.stops)
    return ApiError::bad("stop", fmt::format("at most {} strings, got {}", limits.stops, request.stop.size()));
  for (const std::string& stop : request.stop)
    if (static_cast<int64_t>(stop.size()) > limits.stop_bytes)
      return ApiError::bad("stop", fmt::format("a string of at most {} bytes, got {}", limits.stop_bytes, stop.size()));
  size_t constraint = request.constraint.text.size() + request.constraint.trigger.size();
  for (const std::string& choice : request.constraint.choices) constraint += choice.size();
  if (static_cast<int64_t>(constraint) > limits.constraint_bytes)
    return ApiError{ApiErrorKind::bad_request,
                    fmt::format("the constraint has {} bytes; at most {}", constraint, limits.constraint_bytes), ""};
  if (request.sampling.logprobs > limits.logprobs)
    return ApiError::bad("logprobs", fmt::format("at most {}, got {}", limits.logprobs, request.sampling.logprobs));
  return std::nullopt;
}

std::optional<ApiError> check_prompt_limits(const RequestLimits& limits, GenerationRequest& params) {
  Request& request = params.request;
  const int64_t each = std::max({request.n, request.best_of, request.beams});
  if (static_cast<int64_t>(params.prompts.size()) * each > limits.answers)
    return ApiError::bad("n", fmt::format("{} prompts with {} answers each exceed the limit of {}",
                                          params.prompts.size(), each, limits.answers));
  for (const AskedPrompt& prompt : params.prompts) {
    const auto count = static_cast<int64_t>(prompt.tokens.size());
    if (limits.prompt_tokens == 0 || count <= limits.prompt_tokens) continue;
    ApiError error{ApiErrorKind::too_long,
                   fmt::format("the prompt has {} tokens; this server takes at most {}", count, limits.prompt_tokens),
                   "prompt"};
    error.prompt_tokens = count;
    error.context = limits.prompt_tokens;
    return error;
  }
  if (limits.max_tokens > 0 && (request.max_tokens < 0 || request.max_tokens > limits.max_tokens))
    request.max_tokens = limits.max_tokens;
  return std::nullopt;
}

}  // namespace millrace
