// Fuzzes request bodies of every endpoint: the first byte chooses the endpoint, the rest is the body. Any body is a
// GenerationRequest within its bounds or an error in the API's format, and never an internal error (500).
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "server/api/endpoint.h"

namespace {

using namespace millrace;

void check_refusal(const Endpoint& endpoint, const ApiError& error) {
  const HttpReply reply = endpoint.dialect->refuse(error);
  if (reply.status < 400 || reply.status == 500 || error.message.empty()) std::abort();
  if (!Json::parse(reply.body, nullptr, false).is_object()) std::abort();
  if (endpoint.dialect->refuse_in_stream(error).empty()) std::abort();
}

// An accepted conversation has only known roles, and each tool result answers an earlier call. Messages that
// /v1/responses adds from its store are checked later; Ollama's tool results name no calls.
void check_messages(const Endpoint& endpoint, const Json& messages) {
  if (messages.is_null() || !endpoint.format) return;
  std::set<std::string> called;
  for (const Json& message : messages) {
    const std::string role = message.at("role").get<std::string>();
    if (!std::set<std::string>{"system", "user", "assistant", "tool", "function"}.contains(role)) std::abort();
    if (message.contains("tool_calls"))
      for (const Json& call : message["tool_calls"])
        if (call.contains("id") && call["id"].is_string()) called.insert(call["id"].get<std::string>());
    if (role != "tool" || endpoint.path.starts_with("/api/") || endpoint.path.starts_with("/v1/responses")) continue;
    if (!called.contains(message.at("tool_call_id").get<std::string>())) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto all = endpoints();
  const Endpoint& endpoint = all[data[0] % all.size()];
  Json body = Json::object();
  GenerationRequest ask;
  auto wrong = parse_body(std::string(reinterpret_cast<const char*>(data) + 1, size - 1), &body);
  if (!wrong) wrong = read_fields(endpoint.fields, body, ask);
  if (!wrong && endpoint.prepare) wrong = endpoint.prepare(body, ask);
  if (wrong) {
    check_refusal(endpoint, *wrong);
    return 0;
  }
  const Request& request = ask.request;
  if (request.n < 1 || request.n > 128 || request.max_tokens < -1 || request.min_tokens < 0) std::abort();
  if (request.sampling.logprobs < -1 || request.sampling.logprobs > 100 || request.stop.size() > 64 ||
      ask.prompts.size() > 128)
    std::abort();
  if (!(ask.timeout_seconds >= 0 && ask.timeout_seconds <= 1e6)) std::abort();
  for (const AskedPrompt& prompt : ask.prompts)
    for (TokenId token : prompt.tokens)
      if (token < 0) std::abort();
  if (!ask.messages.is_null() && !ask.messages.is_array()) std::abort();
  check_messages(endpoint, ask.messages);
  return 0;
}
