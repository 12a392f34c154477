// What vLLM's clients ask beside OpenAI's API; its /tokenize, /detokenize and /score are with their namesakes.
#include "server/api/api.h"
#include "server/service.h"

namespace millrace {
namespace {

Handled version(Call&) { return json_reply({{"version", "0.1.0"}}); }
Handled ping(Call&) { return HttpReply{.content_type = "text/plain", .body = ""}; }
Handled load(Call& call) {
  const EngineStats stats = call.service.engine().stats();
  return json_reply({{"server_load", stats.running + stats.waiting}});
}

}  // namespace

std::vector<Endpoint> vllm_endpoints() {
  return {{.method = "GET", .path = "/version", .dialect = &kOpenAi, .summary = "The server's version.", .handle = version},
          {.method = "GET", .path = "/ping", .dialect = &kOpenAi, .summary = "200 without content.", .handle = ping},
          {.method = "POST", .path = "/ping", .dialect = &kOpenAi, .summary = "The same.", .handle = ping, .raw_body = true},
          {.method = "GET", .path = "/load", .dialect = &kOpenAi, .summary = "How many streams run or wait.", .handle = load}};
}

}  // namespace millrace
