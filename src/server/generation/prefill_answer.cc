#include "server/generation/prefill_answer.h"

#include <utility>
#include <vector>

#include "engine/prefix_scopes.h"
#include "kv/transfer/block_exchange.h"
#include "server/generation/prompt_rows.h"
#include "server/models/served_model.h"
#include "server/service.h"

namespace millrace {
namespace {

// The keys of the prompt's blocks in the engine's prefix cache (PrefixCache::scope_of()); none: they are not shared.
std::vector<PrefixKey> shared_keys(const GenerationRequest& params) {
  const Request& request = params.request;
  if (params.prompts.size() != 1 || has_rows(params) || !request.adapters.empty() || !request.documents.empty() ||
      !request.cache_prompt || !request.evictor.empty() || !request.exit.empty() || request.reader)
    return {};
  const std::vector<TokenId>& tokens = params.prompts.front().tokens;
  if (tokens.empty()) return {};
  PrefixScopes scopes;
  std::vector<PrefixKey> keys;
  // The node that generates computes the last token.
  for (const ChainLink& link :
       prefix_chain(std::span(tokens).first(tokens.size() - 1), params.served->engine_options.block_tokens,
                    scopes.of(request.tenant, request.prefix_group)))
    keys.push_back(link.key);
  return keys;
}

// The request with one token, which is not used: an engine generates at least one.
Request prefill_of(const GenerationRequest& params) {
  Request request = request_of(params, params.prompts.front());
  request.max_tokens = 1;
  request.min_tokens = 0;
  request.ignore_eos = true;
  request.stop.clear();
  request.stop_tokens.clear();
  request.bad_words.clear();
  request.constraint = {};
  request.thinking = {};
  request.prediction.clear();
  request.sampling = {};
  request.sampling.temperature = 0;
  request.n = request.best_of = request.beams = 1;
  return request;
}

class PrefillRun : public std::enable_shared_from_this<PrefillRun> {
 public:
  PrefillRun(Service& service, std::shared_ptr<BlockExchange> exchange, const Endpoint& endpoint,
             GenerationRequest params, HttpHeaders headers, const Exchange& http, std::vector<PrefixKey> keys)
      : service_(service),
        exchange_(std::move(exchange)),
        endpoint_(endpoint),
        params_(std::move(params)),
        headers_(std::move(headers)),
        http_(http),
        keys_(std::move(keys)) {}

  void begin() {
    http_.on_disconnect([self = shared_from_this()] {
      self->over_ = true;
      if (self->id_) self->params_.served->engine->cancel(*self->id_);
    });
    auto sink = [self = shared_from_this()](TokenEvent&& event) {
      if (event.last || event.finish == FinishReason::error)
        self->http_.post([self, event = std::move(event)] { self->end(event); });
    };
    auto id = params_.served->engine->submit(prefill_of(params_), std::move(sink),
                                             std::exchange(params_.queue_place, nullptr));
    http_.post([self = shared_from_this(), id = std::move(id)] {
      if (!id.ok()) return self->fail(ApiError::from(id.error()));
      if (self->over_) return self->params_.served->engine->cancel(*id);
      self->id_ = *id;
    });
  }

 private:
  // On the strand.
  void end(const TokenEvent& event) {
    if (over_) return;
    if (event.finish == FinishReason::error) return fail(ApiError::from(event.error));
    if (event.finish == FinishReason::cancelled)
      return fail({ApiErrorKind::draining, "the server is shutting down", ""});
    over_ = true;
    params_.use.reset();
    const auto ticket = exchange_->issue(keys_);
    http_.reply({.headers = headers_,
                 .body = Json{{"ticket", ticket ? Json(ticket->text()) : Json(nullptr)},
                              {"prompt_tokens", params_.prompts.front().tokens.size()},
                              {"cached_tokens", event.timings.cached_tokens}}
                             .dump()});
  }

  void fail(const ApiError& error) {
    if (over_) return;
    over_ = true;
    params_.use.reset();
    http_.end(service_.refused(*endpoint_.dialect, error, headers_), endpoint_.dialect->refuse_in_stream(error));
  }

  Service& service_;
  const std::shared_ptr<BlockExchange> exchange_;
  const Endpoint& endpoint_;
  GenerationRequest params_;
  const HttpHeaders headers_;
  const Exchange http_;
  const std::vector<PrefixKey> keys_;
  std::optional<RequestId> id_;
  bool over_ = false;  // answered, or the client has left
};

}  // namespace

void start_prefill(Service& service, std::shared_ptr<BlockExchange> exchange, const Endpoint& endpoint,
                   GenerationRequest params, HttpHeaders headers, const Exchange& http) {
  std::vector<PrefixKey> keys = shared_keys(params);
  if (keys.empty() || !exchange->shelf())
    return http.reply({.headers = std::move(headers), .body = R"({"ticket":null})"});
  std::make_shared<PrefillRun>(service, std::move(exchange), endpoint, std::move(params), std::move(headers), http,
                               std::move(keys))
      ->begin();
}

}  // namespace millrace
