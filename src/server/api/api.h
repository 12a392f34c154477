// The HTTP APIs of the server, one file each, built on GenerationRequest and Answer. To add one, write its file and
// list its endpoints here and in endpoints.cc.
#pragma once

#include "server/api/endpoint.h"

namespace millrace {

extern const Dialect kOpenAi;
extern const Dialect kResponses;
extern const Dialect kAnthropic;
extern const Dialect kLlamaServer;
extern const Dialect kOllama;

// /v1/models is shared with OpenAI's API: whether the client uses Anthropic's API, and the responses in that format.
bool asks_as_anthropic(const HttpRequest& request);
Handled list_models_as_anthropic(Call& call);
Handled show_model_as_anthropic(Call& call);
// Pages items that have an "id" the way Anthropic does: ?limit= up to `most`, ?after_id=, ?before_id=.
Handled anthropic_page(std::vector<Json> items, const HttpRequest& request, size_t most);

Json timings_json(const Answer& answer);  // timings of a finished answer

std::vector<Endpoint> openai_endpoints();
std::vector<Endpoint> responses_endpoints();
std::vector<Endpoint> anthropic_endpoints();
std::vector<Endpoint> message_batch_endpoints();
std::vector<Endpoint> llama_server_endpoints();
std::vector<Endpoint> ollama_endpoints();
std::vector<Endpoint> ollama_model_endpoints();  // create, copy, delete, pull, blobs
std::vector<Endpoint> model_endpoints();
std::vector<Endpoint> comparison_endpoints();  // the registry of techniques, and comparisons of them
std::vector<Endpoint> adapter_endpoints();
std::vector<Endpoint> embedding_endpoints();
std::vector<Endpoint> file_endpoints();     // files and batches
std::vector<Endpoint> stream_endpoints();   // resumable streams
std::vector<Endpoint> program_endpoints();  // generation programs
std::vector<Endpoint> vllm_endpoints();
std::vector<Endpoint> operation_endpoints();  // health, metrics, the schema
std::vector<Endpoint> page_endpoints();       // the web page's files, and the feed of its live view

}  // namespace millrace
