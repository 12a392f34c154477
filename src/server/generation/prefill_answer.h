// Prefill for another node: computes a request's prompt and generates nothing. The answer is a ticket for the blocks of
// the prompt (kv/transfer/block_ticket.h), which the router sends to the node that generates:
//
//   POST /v1/chat/completions + Millrace-Prefill: 1  ->  {"ticket": "from=-:40123, lease=..., ...", "prompt_tokens":
//   812}
//
// The ticket is null if the prompt's blocks cannot be shared: several prompts, adapters, rows in place of tokens,
// options that drop keys, or no full block. The router then sends the request without a ticket.
#pragma once

#include "server/api/endpoint.h"
#include "server/generation/generation_request.h"
#include "server/http/http.h"

namespace millrace {

class BlockExchange;
class Service;

// The header of a request whose prompt alone is to be computed.
inline constexpr const char* kPrefillHeader = "Millrace-Prefill";

// `params` is complete and charged to its key. Runs until the prompt is computed or the client disconnects.
void start_prefill(Service& service, std::shared_ptr<BlockExchange> exchange, const Endpoint& endpoint,
                   GenerationRequest params, HttpHeaders headers, const Exchange& http);

}  // namespace millrace
