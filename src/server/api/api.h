// The APIs that the server speaks: one file each, over GenerationRequest and Answer. A new one is its file, its line
// here and its line in endpoints.cc.
#pragma once

#include "server/api/endpoint.h"

namespace millrace {

extern const Dialect kOpenAi;
extern const Dialect kResponses;
extern const Dialect kAnthropic;
extern const Dialect kLlamaServer;
extern const Dialect kOllama;

// Of a request for /v1/models: whether a client of Anthropic's API asks, and its answers.
bool asks_as_anthropic(const HttpRequest& request);
Handled list_models_as_anthropic(Call& call);
Handled show_model_as_anthropic(Call& call);
// Items with an "id" as Anthropic pages them: ?limit= up to `most`, ?after_id=, ?before_id=.
Handled anthropic_page(std::vector<Json> items, const HttpRequest& request, size_t most);

Json timings_json(const Answer& answer);  // of an answer that has ended

std::vector<Endpoint> openai_endpoints();
std::vector<Endpoint> responses_endpoints();
std::vector<Endpoint> anthropic_endpoints();
std::vector<Endpoint> message_batch_endpoints();
std::vector<Endpoint> llama_server_endpoints();
std::vector<Endpoint> ollama_endpoints();
std::vector<Endpoint> model_endpoints();
std::vector<Endpoint> adapter_endpoints();
std::vector<Endpoint> embedding_endpoints();
std::vector<Endpoint> file_endpoints();    // files and batches
std::vector<Endpoint> stream_endpoints();  // streams that are read on
std::vector<Endpoint> vllm_endpoints();
std::vector<Endpoint> operation_endpoints();  // health, metrics, the schema
std::vector<Endpoint> page_endpoints();       // what the page is made of, and its live view's feed

}  // namespace millrace
