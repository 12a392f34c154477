#include "exactness/completion_call.h"

#include <fmt/format.h>

#include <functional>

#include "base/ordered_json.h"

namespace millrace {

std::string call_body(const CallStyle& style, const CompletionCall& call) {
  nlohmann::ordered_json body = nlohmann::ordered_json::object();
  if (!style.model.empty()) body["model"] = style.model;
  if (style.api == CompletionApi::chat)
    body["messages"] = nlohmann::ordered_json::array({{{"role", "user"}, {"content", call.prompt}}});
  else
    body["prompt"] = call.prompt;
  body["max_tokens"] = call.max_tokens;
  body["temperature"] = call.temperature;
  if (call.seed >= 0) body["seed"] = call.seed;
  if (style.top_logprobs >= 0 && style.api == CompletionApi::chat) {
    body["logprobs"] = true;
    body["top_logprobs"] = style.top_logprobs;
  } else if (style.top_logprobs >= 0) {
    body["logprobs"] = style.top_logprobs;
  }
  if (call.uncached && style.can_skip_cache) {
    body["cache_prompt"] = false;                                                        // llama-server, millrace
    body["cache_salt"] = fmt::format("{:016x}", std::hash<std::string>{}(call.prompt));  // vLLM, millrace
  }
  if (call.stream) body["stream"] = true;
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string curl_command(const std::string& server, const CallStyle& style, const CompletionCall& call, bool with_key) {
  std::string quoted;
  for (const char c : call_body(style, call)) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return fmt::format("curl -s {}{} -H 'Content-Type: application/json'{} -d '{}'", server, completion_path(style.api),
                     with_key ? " -H \"Authorization: Bearer $MILLRACE_API_KEY\"" : "", quoted);
}

}  // namespace millrace
