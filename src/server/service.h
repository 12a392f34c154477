// Service: everything between an HTTP request and the engine. Finds the endpoint, checks key and body, makes the prompts,
// submits, and has the answer written. Thread-safe: handle() runs on several workers at once.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_accounts.h"
#include "millrace/engine.h"
#include "server/endpoint.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/prompt_scorer.h"
#include "server/response_store.h"

namespace millrace {

struct ServiceOptions {
  std::vector<std::string> names;     // the model's, and aliases; the first one is told in answers
  bool any_name = false;              // whatever a request calls the model
  SamplingOptions sampling;           // where a request says nothing
  bool seed_given = false;            // ... the seed too
  std::vector<std::string> api_keys;  // none: everybody may ask
  std::vector<std::string> origins;   // of web pages that may ask from a browser; "*": any
  bool local_only = false;            // it listens to this machine, and asks for no keys
  double timeout_seconds = 0;         // of a request; 0: none
  int64_t stored_responses = 1024;    // of /v1/responses, kept for later
  int64_t stored_response_bytes = int64_t{64} << 20;
  EngineOptions engine;               // what the engine was made with
  std::string metrics_alias;          // "vllm": its names beside our own
};

class Service {
 public:
  Service(std::shared_ptr<const LanguageModel> model, std::unique_ptr<Engine> engine, ServiceOptions options);
  ~Service();

  // For HttpHandler.
  std::optional<HttpReply> admit(const HttpRequest& request) const;
  void handle(HttpRequest request, Exchange exchange);
  HttpReply refuse(const HttpRequest& request, int status, const std::string& message) const;

  std::string metrics_text() const { return metrics_->text(engine_->stats(), counts_ ? counts_() : HttpCounts(), options_.metrics_alias); }
  void count_connections_with(std::function<HttpCounts()> counts) { counts_ = std::move(counts); }
  Metrics& metrics() const { return *metrics_; }
  ResponseStore& responses() const { return *responses_; }
  const std::shared_ptr<ResponseStore>& shared_responses() const { return responses_; }
  PromptScorer& scorer() const { return *scorer_; }

  // No new work from now on.
  void drain() { draining_ = true; }
  // Ends the engine and with it every stream. The server's threads have ended, or will drop what comes.
  void stop_engine() {
    scorer_.reset();
    engine_.reset();
  }

  const LanguageModel& model() const { return *model_; }
  std::shared_ptr<const LanguageModel> shared_model() const { return model_; }
  Engine& engine() const { return *engine_; }
  const ServiceOptions& options() const { return options_; }
  const std::vector<std::string>& names() const { return options_.names; }
  bool serves(const std::string& name) const;
  ApiError no_such_model(const std::string& name) const;
  int64_t context() const { return context_; }
  int64_t started() const { return started_; }  // Unix seconds
  bool draining() const { return draining_; }
  // An error in the dialect's shape, counted.
  HttpReply refused(const Dialect& dialect, const ApiError& error, HttpHeaders headers) const;
  // Headers of every answer to this request: its id, and what browsers ask for.
  HttpHeaders headers(const HttpRequest& request) const;
  std::string new_id() const;  // 24 hexadecimal digits
  uint64_t new_seed() const;

  // Text and conversations to tokens, and whether they fit. Fills in ask.prompts[].tokens and, for a chat, .text.
  std::optional<ApiError> make_prompts(Ask& ask) const;

 private:
  bool has_key(const HttpRequest& request) const;
  bool origin_allowed(std::string_view origin) const;
  void take(HttpRequest& request, const Exchange& exchange);
  void generate(const Endpoint& endpoint, Ask ask, const HttpRequest& request, const Exchange& exchange);
  std::optional<ApiError> complete(Ask& ask) const;
  void answer(const Endpoint& endpoint, Call& call, const Exchange& exchange);

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<Engine> engine_;
  ServiceOptions options_;
  std::unique_ptr<Metrics> metrics_;
  MemoryHold responses_memory_;
  std::shared_ptr<ResponseStore> responses_;
  std::unique_ptr<PromptScorer> scorer_;
  std::function<HttpCounts()> counts_;
  int64_t context_ = 0;
  int64_t started_ = 0;
  std::atomic<bool> draining_{false};
};

// Constant time in the contents of both; keys of any length.
bool same_secret(std::string_view left, std::string_view right);

}  // namespace millrace
