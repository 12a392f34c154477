// vLLM's own endpoints. Its /tokenize and /detokenize are in llama_server.cc, /rerank and /score in rerank.cc.
#include "base/version.h"
#include "server/api/api.h"
#include "server/service.h"

namespace millrace {
namespace {

Handled version(Call&) { return json_reply({{"version", kVersion}, {"commit", kCommit}}); }
Handled ping(Call&) { return HttpReply{.content_type = "text/plain", .body = ""}; }
Handled load_lora(Call& call) {
  int64_t streams = 0;
  for (const ModelStatus& model : call.service.models().list()) {
    if (!model.served) continue;
    const EngineStats stats = model.served->engine->stats();
    streams += stats.running + stats.waiting;
  }
  return json_reply({{"server_load", streams}});
}

}  // namespace

std::vector<Endpoint> vllm_endpoints() {
  return {{.method = "GET",
           .path = "/version",
           .dialect = &kOpenAi,
           .summary = "The server's version.",
           .handle = version,
           .without_model = true},
          {.method = "GET",
           .path = "/ping",
           .dialect = &kOpenAi,
           .summary = "Returns 200 without content.",
           .handle = ping,
           .without_model = true},
          {.method = "POST",
           .path = "/ping",
           .dialect = &kOpenAi,
           .summary = "The same.",
           .handle = ping,
           .without_model = true,
           .raw_body = true},
          {.method = "GET",
           .path = "/load",
           .dialect = &kOpenAi,
           .summary = "How many streams are running or waiting.",
           .handle = load_lora,
           .without_model = true}};
}

}  // namespace millrace
