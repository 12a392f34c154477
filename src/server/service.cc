#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <random>

#include "base/secret_memory.h"
#include "kv/transfer/block_exchange.h"
#include "run/language_model.h"
#include "server/api/api.h"
#include "server/api/use_field.h"
#include "server/generation/answer_identity.h"
#include "server/generation/conversation.h"
#include "server/generation/generation.h"
#include "server/generation/prefill_answer.h"
#include "server/generation/prompt_rows.h"
#include "server/generation/text_work.h"
#include "server/measure/comparisons.h"
#include "server/page.h"

namespace millrace {
namespace {

std::mt19937_64& random_source() {
  thread_local std::mt19937_64 source{std::random_device{}() ^ (static_cast<uint64_t>(std::random_device{}()) << 32)};
  return source;
}

// The model name in a request's body, or in the query of one without a body.
std::string wanted_model(const HttpRequest& request, const Json& body) {
  for (const char* field : {"model", "name"})
    if (const auto found = body.find(field);
        found != body.end() && found->is_string() && !found->get_ref<const std::string&>().empty())
      return found->get<std::string>();
  const std::string query = "&" + request.query;
  const size_t at = query.find("&model=");
  return at == std::string::npos
             ? ""
             : percent_decoded(std::string_view(query).substr(at + 7, query.find('&', at + 7) - at - 7)).value_or("");
}

std::unique_ptr<ModelRegistry> registry_of_one(std::shared_ptr<const LanguageModel> model,
                                               std::unique_ptr<Engine> engine, const ServiceOptions& options) {
  auto registry = std::move(*ModelRegistry::create({.any_name = options.any_name}));
  auto prompts = options.prompts;
  if (!prompts) prompts = std::move(*PromptWorker::create(model, {}, options.engine.threads));
  const int64_t budget = model->parts().accounts ? model->parts().accounts->budget() : 0;
  auto served = std::make_shared<ServedModel>(options.names, std::move(model), std::move(engine), options.engine,
                                              options.sampling, options.pooling, std::move(prompts));
  served->answers = std::make_shared<AnswerMemory>(answer_parts(budget));
  registry->adopt(std::move(served));
  return registry;
}

std::vector<ApiKey> all_keys(const LiveOptions& options) {
  std::vector<ApiKey> out = options.keys;
  for (size_t i = 0; i < options.api_keys.size(); ++i) out.push_back(plain_api_key(options.api_keys[i], i + 1));
  return out;
}

// Only the digests of keys stay in memory.
void forget_key_texts(LiveOptions& options) {
  options.keys = all_keys(options);
  for (std::string& key : options.api_keys) wipe(key);
  options.api_keys.clear();
}

}  // namespace

struct Service::WaitingCall {
  HttpRequest request;
  std::string rest;
  Json body;
  size_t body_bytes = 0;
  std::atomic<bool> gone{false};  // the client disconnected
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

// A request that waits for its constraint to be compiled.
struct Service::WaitingAsk {
  HttpRequest request;
  GenerationRequest params;
  ConstraintWorkers::Ticket ticket = 0;
  std::atomic<bool> gone{false};  // the client disconnected
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

Service::Service(std::shared_ptr<const LanguageModel> model, std::unique_ptr<Engine> engine, ServiceOptions options)
    : Service(registry_of_one(std::move(model), std::move(engine), options), options) {}

Service::Service(std::unique_ptr<ModelRegistry> models, ServiceOptions options)
    : options_(std::move(options)), access_({}), models_(std::move(models)) {
  telemetry_ = options_.telemetry;
  if (!telemetry_)
    telemetry_ = Telemetry::create({.log = {.level = "off"}}, models_->resolve("").value_or(""), {}).value();
  forget_key_texts(options_);
  change(options_);
  feed_ = std::make_unique<LiveFeed>(*this);
  constraints_ = std::make_unique<ConstraintWorkers>();
  texts_ = std::make_unique<TextWorkers>();
  pulls_ = std::make_unique<ModelPulls>();
  comparisons_ = std::make_unique<Comparisons>();
  answer_parts_ = models_->answer_parts();
  streams_ = std::make_unique<StreamStore>(within(options_.streams, answer_parts_));
  // Under a memory budget, responses are only stored if their limit is a small part of it.
  const auto accounts = models_->memory()  ? models_->memory()
                        : models_->first() ? models_->first()->model->parts().accounts
                                           : nullptr;
  const bool fits = !accounts || accounts->budget() == 0 || options_.stored_response_bytes <= accounts->budget() / 16;
  auto room = fits ? MemoryHold::take(accounts && accounts->budget() > 0 ? accounts : nullptr, "responses",
                                      options_.stored_response_bytes, "")
                   : Result<MemoryHold>(Error::resource("responses: the memory budget is too small to store them"));
  responses_ =
      std::make_shared<ResponseStore>(room.ok() ? options_.stored_responses : 0, options_.stored_response_bytes);
  if (room.ok()) responses_memory_ = std::move(*room);
  started_ =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Service::~Service() { stop_engine(); }

void Service::stop_engine() {
  feed_.reset();
  batches_.reset();
  pulls_->stop();
  comparisons_->stop();
  texts_->stop();        // before what it passes requests to
  constraints_->stop();  // before the engines it compiles for
  models_->stop();
}

void Service::change(const ServiceOptions& fresh) {
  auto changed = std::make_shared<LiveOptions>(static_cast<const LiveOptions&>(fresh));
  forget_key_texts(*changed);
  access_.replace(changed->keys);
  std::lock_guard lock(live_mutex_);
  live_ = std::move(changed);
}

std::shared_ptr<const LiveOptions> Service::live() const {
  std::lock_guard lock(live_mutex_);
  return live_;
}

Result<void> Service::open_files() {
  if (options_.files_dir.empty()) return {};
  MILLRACE_TRY(files_, FileStore::open(options_.files_dir, options_.files));
  batches_ = std::make_unique<BatchRunner>(*this, *files_, options_.batches);
  return batches_->start();
}

bool Service::busy() const {
  return std::ranges::any_of(models_->loaded(), [](const auto& model) { return model->engine->stats().waiting > 0; });
}

void Service::drain() {
  draining_ = true;
  if (batches_) batches_->stop();
  comparisons_->cancel();
  streams_->drain();
}

std::string Service::new_id() const {
  return fmt::format("{:016x}{:08x}", random_source()(), static_cast<uint32_t>(random_source()()));
}
uint64_t Service::new_seed() const { return random_source()() >> 11; }  // representable in JavaScript

std::string Service::metrics_text() const {
  std::vector<EngineAccount> engines;
  for (const auto& model : models_->loaded())
    engines.push_back(
        {model->name(), model->engine->stats(), model->engine_options, std::ssize(model->engine->adapters())});
  return metrics().text(engines, counts_ ? counts_() : HttpCounts(), telemetry_->counts(), constraints_->counts(),
                        texts_->counts(), options_.metrics_aliases) +
         (options_.exchange ? options_.exchange->metrics_text() : "");
}

ApiError Service::no_such_model(const std::string& name) const {
  std::string available;
  const auto list = models_->list();
  for (size_t i = 0; i < std::min<size_t>(list.size(), 10); ++i)
    available += fmt::format("{}'{}'", i == 0 ? "" : ", ", list[i].name);
  if (list.size() > 10) available += fmt::format(" and {} more", list.size() - 10);
  return {ApiErrorKind::no_model,
          fmt::format("model '{}' is not served here; available: {}", name.substr(0, 200),
                      available.empty() ? "none" : available),
          "model"};
}

ApiError Service::model_error(const Error& error) {
  switch (error.kind) {
    case ErrorKind::user: return {ApiErrorKind::bad_request, error.message, "model"};
    case ErrorKind::unsupported: return {ApiErrorKind::unsupported, error.message, "model"};
    case ErrorKind::resource:
    case ErrorKind::cancelled: return {ApiErrorKind::draining, error.message, "model"};
    default: return {ApiErrorKind::internal, error.message, "model"};
  }
}

void Service::guarded(const HttpRequest& request, const Exchange& exchange, const std::function<void()>& work) {
  const auto fail = [&](const ApiError& error) {
    const Dialect& dialect = dialect_of_path(request.path);
    exchange.end(refused(dialect, error, headers(request)), dialect.refuse_in_stream(error));
  };
  try {
    work();
  } catch (const std::bad_alloc&) {
    fail({ApiErrorKind::overloaded, "not enough memory for this request", ""});
  } catch (const std::exception& error) {
    fail({ApiErrorKind::internal, std::string("internal error: ") + error.what(), ""});
  }
}

void Service::handle(HttpRequest request, Exchange exchange) {
  guarded(request, exchange, [&] { take(request, exchange); });
}

// Resolves the model before reading the fields: its sampling options are their defaults.
void Service::take(HttpRequest& request, const Exchange& exchange) {
  std::string rest;
  bool wrong_method = false;
  const Endpoint& endpoint = *find_endpoint(request.method, request.path, &rest, &wrong_method);
  Call call{*this, request, std::move(rest), Json::object(), GenerationRequest{}};
  if (request.method == "POST" && !endpoint.raw_body) {
    call.body_bytes = request.body.size();
    auto wrong = parse_body(request.body, &call.body);
    std::string().swap(request.body);
    if (wrong) return exchange.reply(refused(*endpoint.dialect, *wrong, headers(request)));
  }
  const std::string wanted = wanted_model(request, call.body);
  std::optional<std::string> name = endpoint.without_model ? std::nullopt : models_->resolve(wanted);
  if (!name && !endpoint.without_model && (name = model_with_adapter(*models_, wanted))) call.params.adapter = wanted;
  if (name) call.params.served = models_->try_acquire(*name);
  std::shared_ptr<WaitingCall> waiting;
  if (name && !call.params.served) {
    waiting = std::make_shared<WaitingCall>();
    waiting->body = call.body;  // read again once the model is loaded
    waiting->rest = call.rest;
    waiting->body_bytes = call.body_bytes;
  }
  std::optional<ApiError> wrong = read_body(endpoint, call);
  if (!wrong && !endpoint.without_model && !name) wrong = no_such_model(wanted);
  if (wrong) return exchange.reply(refused(*endpoint.dialect, *wrong, headers(request)));
  if (name && call.params.only_load && call.params.keep_seconds == 0.0) {
    call.params.served.reset();
    models_->unload(*name);
    return answer(endpoint, call, exchange);
  }
  if (call.params.served && call.params.keep_seconds) {
    if (auto again = models_->try_acquire(*name, call.params.keep_seconds)) call.params.served = std::move(again);
  }
  if (!stream_id(request).empty() && request.header("x-request-id").empty())
    request.headers.emplace_back("x-request-id", new_id());  // one id for the stream's answer and its farewell
  const Exchange to = resumable(endpoint, call, exchange);
  if (!waiting) return guarded(request, to, [&] { answer(endpoint, call, to); });
  waiting->request = std::move(request);
  guarded(waiting->request, to, [&] { wait_for_model(endpoint, *name, call.params, waiting, to); });
}

Exchange Service::resumable(const Endpoint& endpoint, const Call& call, const Exchange& exchange) const {
  const std::string id = stream_id(call.request);
  if (id.empty() || !endpoint.format || !call.params.stream || call.params.only_load ||
      endpoint.format->stream_type != std::string_view("text/event-stream"))
    return exchange;
  const auto farewell = [this, dialect = endpoint.dialect, headers = headers(call.request)](StreamEnd why) {
    ApiError error{ApiErrorKind::gone, "", ""};
    switch (why) {
      case StreamEnd::replaced: error.message = "stream: a later request has its X-Conversation-Id"; break;
      case StreamEnd::removed: error.message = "stream: it was deleted"; break;
      case StreamEnd::expired: error.message = "stream: no client read it"; break;
      case StreamEnd::other_reader: error.message = "stream: another client reads it now"; break;
      case StreamEnd::draining: error = {ApiErrorKind::draining, "the server is shutting down", ""}; break;
    }
    return FinalReply{refused(*dialect, error, headers), dialect->refuse_in_stream(error)};
  };
  return streams_->keep(stream_owner(call.request), id, exchange, farewell).value_or(exchange);
}

namespace {

// Applies the id, the time and the seed that a router has chosen, where the request's body has none.
void take_identity(Call& call) {
  const auto identity = AnswerIdentity::parse(call.request.header("millrace-answer"));
  if (!identity) return;
  if (call.params.id.empty()) call.params.id = identity->id;
  call.params.created = identity->created;
  if (!call.params.seed_given) call.params.request.sampling.seed = identity->seed;
  call.params.seed_given = true;
}

}  // namespace

std::optional<ApiError> Service::read_body(const Endpoint& endpoint, Call& call) const {
  if (call.request.method != "POST" || endpoint.raw_body) return std::nullopt;
  call.params.request.sampling = call.params.served ? call.params.served->sampling : options_.sampling;
  call.params.seed_given = options_.seed_given;
  if (call.params.served) call.params.request.stop = call.params.served->stop_strings;
  call.params.row_limits.enabled = options_.prompt_embeds;
  if (const auto& served = call.params.served)
    call.params.row_limits = {options_.prompt_embeds, served->model->parts().model->spec().width, served->context};
  if (auto wrong = read_fields(endpoint.fields, call.body, call.params)) return wrong;
  if (endpoint.prepare)
    if (auto wrong = endpoint.prepare(call.body, call.params)) return wrong;
  if (endpoint.format) {
    take_identity(call);
    const SamplingOptions& defaults = call.params.served ? call.params.served->sampling : options_.sampling;
    if (auto wrong = apply_use(call.body, defaults, call.params)) return wrong;
    if (call.params.retrieval && call.request.account) call.params.retrieval->tenant = call.request.account->key().name;
  }
  return endpoint.look_up ? endpoint.look_up(call) : std::nullopt;
}

// Pings keep the stream open meanwhile.
void Service::wait_for_model(const Endpoint& endpoint, const std::string& name, const GenerationRequest& params,
                             std::shared_ptr<WaitingCall> waiting, const Exchange& exchange) {
  if (waiting->request.header("x-request-id").empty()) waiting->request.headers.emplace_back("x-request-id", new_id());
  exchange.on_disconnect([waiting] { waiting->gone = true; });
  if (endpoint.format && params.stream && *endpoint.format->ping)
    exchange.ping_with(Generation::stream_head(*endpoint.format, headers(waiting->request)), endpoint.format->ping);
  models_->acquire(
      name, params.keep_seconds, [this, &endpoint, waiting, exchange](Result<std::shared_ptr<ServedModel>> served) {
        if (waiting->gone) return;
        guarded(waiting->request, exchange, [&] { resume(endpoint, *waiting, std::move(served), exchange); });
      });
}

void Service::resume(const Endpoint& endpoint, WaitingCall& waiting, Result<std::shared_ptr<ServedModel>> served,
                     const Exchange& exchange) {
  Call call{*this,
            waiting.request,
            std::move(waiting.rest),
            std::move(waiting.body),
            GenerationRequest{},
            waiting.body_bytes};
  std::optional<ApiError> wrong;
  if (!served.ok()) wrong = model_error(served.error());
  if (!wrong) {
    call.params.served = std::move(*served);
    wrong = read_body(endpoint, call);
  }
  call.params.waited_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - waiting.since).count();
  if (wrong)
    return exchange.end(refused(*endpoint.dialect, *wrong, headers(waiting.request)),
                        endpoint.dialect->refuse_in_stream(*wrong));
  answer(endpoint, call, exchange);
}

// What may read texts with a model's template or vocabulary runs on threads of its own (text_workers.h).
void Service::answer(const Endpoint& endpoint, Call& call, const Exchange& exchange) {
  if (call.request.method == "POST" && !endpoint.without_model && call.params.served && !call.params.only_load)
    return wait_for_texts(endpoint, call, exchange);
  answer_now(endpoint, call, exchange);
}

void Service::answer_now(const Endpoint& endpoint, Call& call, const Exchange& exchange) {
  if (endpoint.format) {
    call.body = nullptr;
    return generate(endpoint, std::move(call.params), call.request, exchange);
  }
  const std::shared_ptr<TextWork> work = call.params.text_work;
  const WorkScope scope(work ? work->limits() : WorkLimits());
  const auto refuse = [&](const ApiError& wrong) {
    exchange.reply(refused(*endpoint.dialect, work ? work->explain(wrong) : wrong, headers(call.request)));
  };
  if (endpoint.begin) {
    if (auto wrong = endpoint.begin(call, exchange)) refuse(*wrong);
    return;
  }
  Handled handled = endpoint.handle(call);
  if (const ApiError* wrong = std::get_if<ApiError>(&handled)) return refuse(*wrong);
  HttpReply reply = std::move(std::get<HttpReply>(handled));
  for (auto& header : headers(call.request)) reply.headers.push_back(std::move(header));
  exchange.reply(std::move(reply));
}

double Service::time_limit_of(const GenerationRequest& params) const {
  const double most = live()->timeout_seconds, asked = params.timeout_seconds;
  if (asked > 0) return most > 0 ? std::min(most, asked) : asked;
  return most;
}

WorkShare Service::share_of(const HttpRequest& request, const GenerationRequest& params) const {
  WorkShare share = WorkShare::of(request);
  share.priority = params.request.priority;
  if (const double limit = time_limit_of(params); limit > 0) {
    const std::chrono::duration<double> left(limit - params.waited_seconds - params.reading_seconds -
                                             params.compressing_seconds);
    share.until =
        std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(left);
  }
  return share;
}

// Fills in the request's defaults and checks it against the limits and the engine.
std::optional<ApiError> Service::complete(GenerationRequest& params) const {
  const auto live = this->live();
  if (auto wrong = check_prompts(params)) return wrong;
  if (auto wrong = check_prompt_limits(live->limits, params)) return wrong;
  if (!params.seed_given) params.request.sampling.seed = new_seed();
  double& limit = params.request.time_limit_seconds;
  limit = time_limit_of(params);
  if (const double waited = params.waited_seconds + params.reading_seconds + params.compressing_seconds;
      limit > 0 && waited > 0) {
    limit -= waited;
    if (limit <= 0)
      return ApiError{ApiErrorKind::time_limit,
                      fmt::format("timeout: the request timed out while its {}",
                                  params.compressing_seconds > 0 ? "prompt was being compressed"
                                  : params.waited_seconds > 0    ? "model was being loaded"
                                                                 : "prompt was being read"),
                      "timeout"};
  }
  for (const AskedPrompt& prompt : params.prompts) {
    const Request request = request_of(params, prompt);
    auto good = params.served->engine->check(request);
    if (good.ok()) continue;
    ApiError error = constraint_error(params, ApiError::from(good.error()));
    if (error.kind == ApiErrorKind::overloaded) error.kind = ApiErrorKind::bad_request;  // can never be satisfied
    return error;
  }
  return std::nullopt;
}

// Rejects a request whose first token would be too late, so that the client can try elsewhere immediately. `expected`
// is returned in a header.
std::optional<ApiError> Service::check_wait(const GenerationRequest& params, const HttpRequest& request,
                                            double& expected) const {
  int64_t tokens = 0;
  for (const AskedPrompt& prompt : params.prompts) tokens += static_cast<int64_t>(prompt.tokens.size());
  expected = params.served ? params.served->wait->first_token_seconds(tokens) : 0;
  if (expected == 0) return std::nullopt;
  double most = params.max_ttft_seconds > 0 ? params.max_ttft_seconds : live()->max_ttft_seconds;
  if (const std::string_view given = request.header("millrace-max-ttft"); !given.empty()) {
    const auto [end, status] = std::from_chars(given.data(), given.data() + given.size(), most);
    if (status != std::errc() || end != given.data() + given.size() || !(most > 0 && most <= 1e6))
      return ApiError{ApiErrorKind::bad_request, "Millrace-Max-TTFT: must be a number of seconds above 0", ""};
  }
  const char* name = "max_ttft";
  if (const double deadline = params.request.deadline_seconds; deadline > 0 && (most == 0 || deadline < most)) {
    most = deadline;
    name = "deadline";
  }
  if (most == 0 || expected <= most) return std::nullopt;
  ApiError error{
      ApiErrorKind::overloaded,
      fmt::format("{}: the first token is expected in {:.3f} seconds, the limit is {:g}", name, expected, most), name};
  error.retry_seconds = std::max(1.0, expected - most);
  error.expected_ttft = expected;
  return error;
}

// Requests with the same salt share prefixes if they would share them without a salt.
std::string salted(const std::string& tenant, const std::string& group, const std::string& salt) {
  const KeyDigest digest =
      key_digest(fmt::format("{} {}\n{}", group.empty() ? "tenant" : "group", group.empty() ? tenant : group, salt));
  return "salt " + std::string(digest.begin(), digest.end());
}

// Charges the request to the caller's key and sets the engine's tenant.
std::optional<ApiError> Service::charge(GenerationRequest& params, const HttpRequest& request) const {
  params.share = share_of(request, params);
  if (!request.account && !params.cache_salt.empty()) params.request.prefix_group = salted("", "", params.cache_salt);
  if (!request.account) return std::nullopt;
  const ApiKey key = request.account->key();
  params.request.tenant = key.name;
  params.request.prefix_group =
      params.cache_salt.empty() ? key.cache_group : salted(key.name, key.cache_group, params.cache_salt);
  int64_t prompt_tokens = 0;
  for (const AskedPrompt& prompt : params.prompts) prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
  const int64_t answers = static_cast<int64_t>(params.prompts.size()) *
                          std::max({params.request.n, params.request.best_of, params.request.beams});
  if (auto refused = request.account->begin(prompt_tokens, answers, unix_seconds())) return refused;
  params.use = std::make_shared<KeyUse>(request.account, prompt_tokens, answers);
  return std::nullopt;
}

void Service::generate(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                       const Exchange& exchange) {
  if (params.only_load)
    return Generation::start(*this, endpoint, std::move(params), headers(request), exchange, nullptr);
  const auto refuse = [&](const ApiError& error) {
    exchange.end(refused(*endpoint.dialect, error, headers(request)), endpoint.dialect->refuse_in_stream(error));
  };
  if (!params.prompt_passes.empty() && params.infill)
    return refuse(ApiError::unsupported("millrace.use", "infill prompts are not compressed"));
  if (params.prompt_passes.empty() && !params.no_prompt_passes && !params.infill && !has_rows(params))
    params.prompt_passes = params.served->prompts->passes();
  if (auto wrong = check_limits(live()->limits, params)) return refuse(*wrong);
  if (auto wrong = choose_adapters(params)) return refuse(*wrong);
  if (auto wrong = read_texts(params)) return refuse(*wrong);
  if (params.prompt_passes.empty()) return complete_answer(endpoint, std::move(params), request, exchange);
  if (auto wrong = check_prompt_limits(live()->limits, params)) return refuse(*wrong);
  wait_for_prompts(endpoint, std::move(params), request, exchange);
}

void Service::complete_answer(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                              const Exchange& exchange) {
  auto wrong = complete(params);
  const bool prefills = !wrong && options_.exchange && !request.header("millrace-prefill").empty();
  if (prefills) wrong = charge(params, request);
  if (wrong)
    return exchange.end(refused(*endpoint.dialect, *wrong, headers(request)),
                        endpoint.dialect->refuse_in_stream(*wrong));
  if (prefills) return start_prefill(*this, options_.exchange, endpoint, std::move(params), headers(request), exchange);
  note_ticket(request);
  if (params.request.constraint.kind == Constraint::Kind::none)
    return begin_answer(endpoint, std::move(params), request, exchange);
  wait_for_constraint(endpoint, std::move(params), request, exchange);
}

// A router says which node holds the blocks of the prompt. This node connects there, so it listens to its operator
// alone.
void Service::note_ticket(const HttpRequest& request) const {
  if (!options_.exchange || !(request.account ? request.account->key().admin : options_.local_only)) return;
  if (const auto ticket = BlockTicket::parse(request.header("millrace-blocks"))) options_.exchange->announce(*ticket);
}

// Compiles in the background: it can take long, and this thread serves other requests.
void Service::wait_for_constraint(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                                  const Exchange& exchange) {
  auto waiting = std::make_shared<WaitingAsk>();
  waiting->request = request;
  waiting->params = std::move(params);
  const std::shared_ptr<ServedModel> served = waiting->params.served;
  const Constraint& constraint = waiting->params.request.constraint;
  if (const auto known = served->engine->compiled(constraint)) {
    constraints_->count_known();
    return received_constraint(endpoint, *waiting, *known, exchange);
  }
  std::string identity =
      fmt::format("{} {} {} {} {}", static_cast<const void*>(served->engine.get()), static_cast<int>(constraint.kind),
                  constraint.text.size(), constraint.trigger.size(), constraint.text + constraint.trigger);
  for (const std::string& choice : constraint.choices) identity += fmt::format(" {} {}", choice.size(), choice);
  const KeyDigest digest = key_digest(identity);
  ConstraintWorkers::Work work{.key = std::string(digest.begin(), digest.end()),
                               .tenant = request.account ? request.account->key().name : "",
                               .compile = {},
                               .done = {}};
  work.compile = [served, constraint](const CompileOrder& order) { return served->engine->compile(constraint, order); };
  work.done = [this, &endpoint, waiting, exchange](const Result<CompiledConstraint>& compiled) {
    exchange.post([this, &endpoint, waiting, exchange, compiled] {
      if (waiting->gone) return;
      guarded(waiting->request, exchange, [&] { received_constraint(endpoint, *waiting, compiled, exchange); });
    });
  };
  waiting->ticket = constraints_->new_ticket();
  exchange.on_disconnect([this, waiting] {
    waiting->gone = true;
    constraints_->leave(waiting->ticket);
  });
  const auto added = constraints_->add(waiting->ticket, std::move(work));
  if (!added.ok()) {
    const ApiError error = ApiError::from(added.error());
    return exchange.end(refused(*endpoint.dialect, error, headers(request)), endpoint.dialect->refuse_in_stream(error));
  }
  if (waiting->gone) constraints_->leave(waiting->ticket);  // the client may have disconnected before add()
}

void Service::received_constraint(const Endpoint& endpoint, WaitingAsk& waiting,
                                  const Result<CompiledConstraint>& compiled, const Exchange& exchange) {
  std::optional<ApiError> wrong;
  if (!compiled.ok()) wrong = constraint_error(waiting.params, ApiError::from(compiled.error()));
  if (!compiled.ok() && compiled.error().kind == ErrorKind::cancelled)
    wrong = ApiError{ApiErrorKind::draining, "the server is shutting down", ""};
  double& limit = waiting.params.request.time_limit_seconds;
  if (!wrong && limit > 0) {
    limit -= std::chrono::duration<double>(std::chrono::steady_clock::now() - waiting.since).count();
    if (limit <= 0)
      wrong = ApiError{ApiErrorKind::time_limit,
                       "timeout: the request timed out while its constraint was being compiled", "timeout"};
  }
  if (wrong)
    return exchange.end(refused(*endpoint.dialect, *wrong, headers(waiting.request)),
                        endpoint.dialect->refuse_in_stream(*wrong));
  waiting.params.compiled = *compiled;
  begin_answer(endpoint, std::move(waiting.params), waiting.request, exchange);
}

namespace {

// The parts of the constraint that are not enforced, as a header value: printable ASCII of bounded length.
std::string weakened_header(const std::vector<std::string>& weakened) {
  constexpr size_t kMax = 1024;
  std::string out;
  for (const std::string& one : weakened) out += (out.empty() ? "" : "; ") + one;
  for (char& c : out)
    if (c < 0x20 || c > 0x7E) c = '?';
  return out.size() <= kMax ? out : out.substr(0, kMax - 3) + "...";
}

}  // namespace

void Service::begin_answer(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                           const Exchange& exchange) {
  double expected = 0;
  if (auto wrong = check_wait(params, request, expected))
    return exchange.end(refused(*endpoint.dialect, *wrong, headers(request)),
                        endpoint.dialect->refuse_in_stream(*wrong));
  std::unique_ptr<AnswerMemory::Hold> memory;
  const int64_t bytes =
      answer_bytes(params, *endpoint.format, params.served->context, exchange.taker() && !params.stream);
  if (auto wrong = AnswerMemory::take(params.served->answers, bytes, memory))
    return exchange.end(refused(*endpoint.dialect, *wrong, headers(request)),
                        endpoint.dialect->refuse_in_stream(*wrong));
  if (auto wrong = charge(params, request))
    return exchange.end(refused(*endpoint.dialect, *wrong, headers(request)),
                        endpoint.dialect->refuse_in_stream(*wrong));
  HttpHeaders head = headers(request);
  if (expected > 0) head.emplace_back("Millrace-Expected-TTFT", fmt::format("{:.6f}", expected));
  head.emplace_back("Millrace-Seed", std::to_string(params.request.sampling.seed));
  if (const auto& weakened = params.compiled.notes; !weakened.empty()) {
    std::string value = weakened_header(weakened);
    telemetry().log().event(LogLevel::warn, "constraint weakened",
                            {{"request_id", head.front().second}, {"weakened", value}});
    head.emplace_back("Millrace-Weakened", std::move(value));
  }
  if (params.truncated_tokens > 0)
    head.emplace_back("Millrace-Truncated-Tokens", std::to_string(params.truncated_tokens));
  if (params.compressed_tokens > 0)
    head.emplace_back("Millrace-Compressed-Tokens", std::to_string(params.compressed_tokens));
  if (const std::string id = stream_id(request); !id.empty()) streams_->admit(stream_owner(request), id, exchange);
  Generation::start(*this, endpoint, std::move(params), std::move(head), exchange, std::move(memory));
}

}  // namespace millrace
