// Service: everything between an HTTP request and the engine. Finds the endpoint, checks key and body, builds the
// prompts, submits the request and has the answer written. Thread-safe: handle() runs on several workers concurrently.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/memory_accounts.h"
#include "millrace/engine.h"
#include "server/access/access.h"
#include "server/access/request_limits.h"
#include "server/api/endpoint.h"
#include "server/batch/batch_runner.h"
#include "server/generation/constraint_workers.h"
#include "server/generation/prompt_worker.h"
#include "server/generation/response_store.h"
#include "server/generation/stream_store.h"
#include "server/generation/text_workers.h"
#include "server/http/http.h"
#include "server/models/model_facts.h"
#include "server/models/model_pulls.h"
#include "server/models/model_registry.h"
#include "server/models/served_model.h"
#include "server/telemetry/live_feed.h"
#include "server/telemetry/metrics.h"
#include "server/telemetry/telemetry.h"

namespace millrace {

class BlockExchange;
class NamedIndexes;

// Settings that can change while the server runs; see Service::change().
struct LiveOptions {
  std::vector<std::string> api_keys;  // admin keys without limits
  std::vector<ApiKey> keys;           // further keys; if there are none of either, no key is required
  Role metrics_role = Role::admin;    // role required for /metrics
  std::vector<std::string> origins;   // origins whose web pages may send requests; "*": any
  double timeout_seconds = 0;         // per request; 0: no timeout
  double max_ttft_seconds = 0;        // rejects requests with a later expected first token; 0: never
  RequestLimits limits;
};

struct ServiceOptions : LiveOptions {
  std::vector<std::string> names;   // the model's name and aliases; answers report the first
  bool any_name = false;            // accept any model name in requests
  SamplingOptions sampling;         // defaults for requests
  bool seed_given = false;          // the defaults include a seed
  bool local_only = false;          // listens on localhost only, without keys
  int64_t stored_responses = 1024;  // number of responses of /v1/responses kept for later requests
  int64_t stored_response_bytes = int64_t{64} << 20;
  EngineOptions engine;                   // that the engine was created with
  std::optional<Pooling> pooling;         // pooling of embeddings; the model's own when absent
  std::shared_ptr<PromptWorker> prompts;  // for the model that the service was created with; null: no compression
  std::string files_dir;                  // folder of uploads and batches; "": none
  FileLimits files;
  BatchLimits batches;
  StreamLimits streams;                         // that clients can resume after losing a connection
  bool page = true;                             // serve the web page
  bool prompt_embeds = false;                   // requests may give rows instead of a prompt (docs/embedding-rows.md)
  std::vector<std::string> metrics_aliases;     // "vllm", "llamacpp": also export metrics under their names
  double stuck_seconds = 600;                   // a step that runs this long is considered hung: its tokens are bounded
  std::shared_ptr<Telemetry> telemetry;         // null: counters only
  std::shared_ptr<BlockExchange> exchange;      // null: the node moves no blocks to or from others
  std::shared_ptr<const NamedIndexes> indexes;  // that requests may name; null: none
};

class Comparisons;

class Service {
 public:
  Service(std::shared_ptr<const LanguageModel> model, std::unique_ptr<Engine> engine, ServiceOptions options);
  Service(std::unique_ptr<ModelRegistry> models, ServiceOptions options);
  ~Service();

  // For HttpHandler.
  std::optional<HttpReply> admit(HttpRequest& request) const;
  void handle(HttpRequest request, Exchange exchange);
  HttpReply refuse(const HttpRequest& request, int status, const std::string& message) const;
  FinalReply shutdown_message(const HttpRequest& request) const;

  std::string metrics_text() const;
  void count_connections_with(std::function<HttpCounts()> counts) { counts_ = std::move(counts); }
  Telemetry& telemetry() const { return *telemetry_; }
  Metrics& metrics() const { return telemetry_->metrics(); }
  LiveFeed& feed() const { return *feed_; }

  StreamStore& streams() const { return *streams_; }
  ConstraintWorkers& constraints() const { return *constraints_; }
  TextWorkers& texts() const { return *texts_; }
  ModelPulls& pulls() const { return *pulls_; }
  Comparisons& comparisons() const { return *comparisons_; }
  // Opens options().files_dir and resumes unfinished batches. Errors: user (the folder).
  Result<void> open_files();
  FileStore* files() const { return files_.get(); }        // null: no folder is configured
  BatchRunner* batches() const { return batches_.get(); }  // null without a folder

  bool has_keys() const { return !access_.open(); }
  std::shared_ptr<KeyAccount> account_of(const std::string& key_name) const {
    return access_.named(key_name);
  }  // null: no such key
  std::vector<KeyUsage> key_usage() const { return access_.usage(); }
  const AnswerParts& answer_parts() const { return answer_parts_; }
  ResponseStore& responses() const { return *responses_; }
  const std::shared_ptr<ResponseStore>& shared_responses() const { return responses_; }

  // Accepts no new work.
  void drain();
  // Stops the engines and with them every stream. The server's threads must have ended, or must drop what they receive.
  void stop_engine();

  ModelRegistry& models() const { return *models_; }
  ModelFacts& model_facts() const { return model_facts_; }
  ApiError no_such_model(const std::string& name) const;
  // Converts the error of a model that could not be loaded.
  static ApiError model_error(const Error& error);
  // The first model, which must be loaded. Code that answers a request uses call.served() or params.served instead.
  const LanguageModel& model() const { return *models_->first()->model; }
  Engine& engine() const { return *models_->first()->engine; }
  int64_t context() const { return models_->first()->context; }
  // Returns true if clients may name files of this machine.
  bool trusts_callers() const { return options_.local_only || !access_.open(); }
  const ServiceOptions& options() const { return options_; }  // at startup
  std::shared_ptr<const LiveOptions> live() const;
  // Applies new settings; running requests keep the old ones. The caller must not add keys to a server without keys, or
  // remove all keys: whether its address is safe without keys was decided at startup.
  void change(const ServiceOptions& fresh);
  // Returns true if streams are waiting in any engine's queue.
  bool busy() const;
  int64_t started() const { return started_; }  // Unix seconds
  bool draining() const { return draining_; }
  // An error in the dialect's format; counts it in the metrics.
  HttpReply refused(const Dialect& dialect, const ApiError& error, HttpHeaders headers) const;
  // Headers of every answer to this request: request id, rate limits, CORS.
  HttpHeaders headers(const HttpRequest& request) const;
  // Returns true if a client may use this as a request id: 1 to 128 printable ASCII characters without spaces.
  static bool is_id(std::string_view text);
  // For a caller's prompts that are read: its tenant, its request's priority, and how much of its time limit is left.
  WorkShare share_of(const HttpRequest& request, const GenerationRequest& params) const;
  std::string new_id() const;  // 24 hexadecimal digits
  uint64_t new_seed() const;

  // Tokenizes the request's text or conversation for params.served and checks that it fits the context. Fills in
  // params.prompts[].tokens and, for a chat, .text.
  std::optional<ApiError> make_prompts(GenerationRequest& params) const;

 private:
  std::optional<ApiError> admit_caller(const Endpoint* endpoint, HttpRequest& request) const;
  bool origin_allowed(std::string_view origin) const;
  void take(HttpRequest& request, const Exchange& exchange);
  void generate(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                const Exchange& exchange);
  struct WaitingAsk;
  void wait_for_constraint(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                           const Exchange& exchange);
  struct WaitingPrompts;
  void wait_for_prompts(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                        const Exchange& exchange);
  void received_prompts(const Endpoint& endpoint, WaitingPrompts& waiting,
                        Result<std::vector<CompressedPrompt>> compressed, const Exchange& exchange);
  void complete_answer(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                       const Exchange& exchange);
  void note_ticket(const HttpRequest& request) const;
  void received_constraint(const Endpoint& endpoint, WaitingAsk& waiting, const Result<CompiledConstraint>& compiled,
                           const Exchange& exchange);
  void begin_answer(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                    const Exchange& exchange);
  std::optional<ApiError> encode_prompts(GenerationRequest& params) const;
  std::optional<ApiError> encode_documents(GenerationRequest& params) const;
  std::optional<ApiError> check_prompts(GenerationRequest& params) const;
  std::optional<ApiError> complete(GenerationRequest& params) const;
  double time_limit_of(const GenerationRequest& params) const;  // seconds; 0: none
  static int64_t context_of(const GenerationRequest& params);   // most tokens of its prompt and answer
  double place_seconds() const;
  std::optional<ApiError> check_wait(const GenerationRequest& params, const HttpRequest& request,
                                     double& expected) const;
  std::optional<ApiError> charge(GenerationRequest& params, const HttpRequest& request) const;
  void answer(const Endpoint& endpoint, Call& call, const Exchange& exchange);
  struct WaitingText;
  void wait_for_texts(const Endpoint& endpoint, Call& call, const Exchange& exchange);
  void answer_texts(const Endpoint& endpoint, WaitingText& waiting, const Exchange& exchange);
  std::optional<ApiError> read_texts(GenerationRequest& params) const;
  void answer_now(const Endpoint& endpoint, Call& call, const Exchange& exchange);
  struct WaitingCall;
  // Returns a stream that outlives its connection for a request with a stream id, and `exchange` for others.
  Exchange resumable(const Endpoint& endpoint, const Call& call, const Exchange& exchange) const;
  std::optional<ApiError> read_body(const Endpoint& endpoint, Call& call) const;
  void wait_for_model(const Endpoint& endpoint, const std::string& name, const GenerationRequest& params,
                      std::shared_ptr<WaitingCall> waiting, const Exchange& exchange);
  void resume(const Endpoint& endpoint, WaitingCall& waiting, Result<std::shared_ptr<ServedModel>> served,
              const Exchange& exchange);
  // Runs `work`; answers with an error if it throws.
  void guarded(const HttpRequest& request, const Exchange& exchange, const std::function<void()>& work);

  ServiceOptions options_;
  std::shared_ptr<Telemetry> telemetry_;
  std::unique_ptr<LiveFeed> feed_;
  Access access_;
  mutable std::mutex live_mutex_;
  std::shared_ptr<const LiveOptions> live_;
  std::unique_ptr<ModelRegistry> models_;
  mutable ModelFacts model_facts_;
  std::unique_ptr<StreamStore> streams_;
  std::unique_ptr<ConstraintWorkers> constraints_;
  std::unique_ptr<TextWorkers> texts_;
  std::unique_ptr<ModelPulls> pulls_;
  std::unique_ptr<Comparisons> comparisons_;
  std::unique_ptr<FileStore> files_;
  std::unique_ptr<BatchRunner> batches_;
  AnswerParts answer_parts_;  // parts of the memory budget
  MemoryHold responses_memory_;
  std::shared_ptr<ResponseStore> responses_;
  std::function<HttpCounts()> counts_;
  int64_t started_ = 0;
  std::atomic<bool> draining_{false};
};

}  // namespace millrace
