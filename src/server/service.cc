#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "engine/language_model.h"
#include "server/api/api.h"
#include "server/conversation.h"
#include "server/generation.h"

namespace millrace {
namespace {

constexpr size_t kMostIdBytes = 128;
constexpr int64_t kMostAnswers = 512;  // of one request, over all its prompts

ApiErrorKind kind_of_status(int status) {
  switch (status) {
    case 408: return ApiErrorKind::too_slow;
    case 413: return ApiErrorKind::too_large;
    case 431: return ApiErrorKind::head_too_large;
    default: return ApiErrorKind::bad_request;
  }
}

std::mt19937_64& random_source() {
  thread_local std::mt19937_64 source{std::random_device{}() ^ (static_cast<uint64_t>(std::random_device{}()) << 32)};
  return source;
}

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= kMostIdBytes && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

// An address or localhost. A web page can make its own name mean 127.0.0.1, but not change what the browser calls it.
bool is_local_name(std::string_view host) {
  if (host.empty() || host.starts_with('[')) return true;
  host = host.substr(0, host.rfind(':'));
  return host == "localhost" || host.ends_with(".localhost") || host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

bool same_secret(std::string_view left, std::string_view right) {
  unsigned different = left.size() != right.size();
  for (size_t i = 0; i < left.size(); ++i) different |= static_cast<unsigned>(left[i] ^ (right.empty() ? '\1' : right[i % right.size()]));
  return different == 0;
}

Service::Service(std::shared_ptr<const LanguageModel> model, std::unique_ptr<Engine> engine, ServiceOptions options)
    : model_(std::move(model)), engine_(std::move(engine)), options_(std::move(options)), context_(engine_->context()) {
  metrics_ = std::make_unique<Metrics>(options_.names.front());
  // Within a memory budget they are kept where it has room for them, and not at all otherwise.
  const auto& accounts = model_->parts().accounts;
  auto room = MemoryHold::take(accounts->budget() > 0 ? accounts : nullptr, "responses", options_.stored_response_bytes, "");
  responses_ = std::make_shared<ResponseStore>(room.ok() ? options_.stored_responses : 0, options_.stored_response_bytes);
  if (room.ok()) responses_memory_ = std::move(*room);
  scorer_ = std::make_unique<PromptScorer>(model_, options_.engine, context_);
  started_ = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Service::~Service() = default;

std::string Service::new_id() const { return fmt::format("{:016x}{:08x}", random_source()(), static_cast<uint32_t>(random_source()())); }
uint64_t Service::new_seed() const { return random_source()() >> 11; }  // a number that JavaScript can hold

bool Service::serves(const std::string& name) const {
  if (options_.any_name || name.empty()) return true;
  const std::string plain = name.ends_with(":latest") ? name.substr(0, name.size() - 7) : name;
  return std::ranges::find(options_.names, plain) != options_.names.end() || std::ranges::find(options_.names, name) != options_.names.end();
}

ApiError Service::no_such_model(const std::string& name) const {
  return {ApiErrorKind::no_model, fmt::format("model '{}' is not served here; there is '{}'", name.substr(0, 200), options_.names.front()), "model"};
}

bool Service::has_key(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  std::string_view given = request.header("x-api-key");
  const std::string_view bearer = request.header("authorization");
  if (bearer.size() > 7 && (bearer.starts_with("Bearer ") || bearer.starts_with("bearer "))) given = bearer.substr(7);
  bool any = false;
  for (const std::string& key : options_.api_keys) any |= same_secret(given, key);  // every one is compared
  return any;
}

bool Service::origin_allowed(std::string_view origin) const {
  return std::ranges::any_of(options_.origins, [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

HttpHeaders Service::headers(const HttpRequest& request) const {
  const std::string_view given = request.header("x-request-id");
  HttpHeaders out = {{"X-Request-Id", is_id(given) ? std::string(given) : new_id()}};
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && origin_allowed(origin)) {
    out.emplace_back("Access-Control-Allow-Origin", std::string(origin));
    out.emplace_back("Vary", "Origin");
  }
  return out;
}

HttpReply Service::refuse(const HttpRequest& request, int status, const std::string& message) const {
  return refused(dialect_of_path(request.path), {kind_of_status(status), message, ""}, headers(request));
}

HttpReply Service::refused(const Dialect& dialect, const ApiError& error, HttpHeaders headers) const {
  metrics_->refused(error.kind);
  HttpReply reply = dialect.refuse(error);
  reply.headers = std::move(headers);
  if (error.kind == ApiErrorKind::unauthorized) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.kind == ApiErrorKind::draining) reply.headers.emplace_back("Retry-After", "5");
  if (error.kind == ApiErrorKind::overloaded) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

// What can be said from the head alone.
std::optional<HttpReply> Service::admit(const HttpRequest& request) const {
  const auto refused_for = [&](ApiErrorKind kind, const std::string& message) {
    return refused(dialect_of_path(request.path), {kind, message, ""}, headers(request));
  };
  const std::string_view origin = request.header("origin");
  if (request.method == "OPTIONS" && !origin.empty() && origin_allowed(origin)) {
    HttpReply reply{.status = 204, .content_type = "", .headers = headers(request)};
    reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    reply.headers.emplace_back("Access-Control-Allow-Headers", "authorization, content-type, x-api-key, x-request-id, anthropic-version, anthropic-beta");
    reply.headers.emplace_back("Access-Control-Max-Age", "600");
    return reply;
  }
  std::string rest;
  bool wrong_method = false;
  const Endpoint* endpoint = find_endpoint(request.method, request.path, &rest, &wrong_method);
  if ((!endpoint || !endpoint->open) && !has_key(request))
    return refused_for(ApiErrorKind::unauthorized, "a valid API key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
  if (!endpoint) return refused_for(ApiErrorKind::not_found, fmt::format("{}: there is no such path", request.path.substr(0, 200)));
  if (wrong_method) return refused_for(ApiErrorKind::bad_method, fmt::format("{}: takes {}, not {}", request.path, endpoint->method, request.method.substr(0, 20)));
  if (options_.local_only && !is_local_name(request.header("host")))
    return refused_for(ApiErrorKind::forbidden, fmt::format("host '{}': this server is for this machine alone; give it keys, or --allow-public", request.header("host").substr(0, 200)));
  if (!origin.empty() && options_.api_keys.empty() && !origin_allowed(origin) && !origin.ends_with("://" + std::string(request.header("host"))))
    return refused_for(ApiErrorKind::forbidden, fmt::format("origin '{}': web pages from elsewhere may not ask; --cors-origin allows one", origin.substr(0, 200)));
  if (draining_ && !endpoint->open) return refused_for(ApiErrorKind::draining, "the server is shutting down");
  return std::nullopt;
}

void Service::handle(HttpRequest request, Exchange exchange) {
  try {
    take(request, exchange);
  } catch (const std::bad_alloc&) {
    exchange.reply(refused(dialect_of_path(request.path), {ApiErrorKind::overloaded, "not enough memory for this request", ""}, headers(request)));
  } catch (const std::exception& error) {
    exchange.reply(refused(dialect_of_path(request.path), {ApiErrorKind::internal, std::string("internal error: ") + error.what(), ""}, headers(request)));
  }
}

void Service::take(HttpRequest& request, const Exchange& exchange) {
  std::string rest;
  bool wrong_method = false;
  const Endpoint& endpoint = *find_endpoint(request.method, request.path, &rest, &wrong_method);
  Call call{*this, request, std::move(rest), Json::object(), Ask{}};
  if (request.method == "POST") {
    auto wrong = parse_body(request.body, &call.body);
    std::string().swap(request.body);
    call.ask.request.sampling = options_.sampling;
    call.ask.seed_given = options_.seed_given;
    if (!wrong) wrong = read_fields(endpoint.fields, call.body, call.ask);
    if (!wrong && !serves(call.ask.model)) wrong = no_such_model(call.ask.model);
    if (!wrong && endpoint.prepare) wrong = endpoint.prepare(call.body, call.ask);
    if (!wrong && endpoint.look_up) wrong = endpoint.look_up(*this, call.body, call.ask);
    if (wrong) return exchange.reply(refused(*endpoint.dialect, *wrong, headers(request)));
  }
  answer(endpoint, call, exchange);
}

void Service::answer(const Endpoint& endpoint, Call& call, const Exchange& exchange) {
  if (endpoint.format) {
    call.body = nullptr;
    return generate(endpoint, std::move(call.ask), call.request, exchange);
  }
  Handled handled = endpoint.handle(call);
  if (const ApiError* wrong = std::get_if<ApiError>(&handled)) return exchange.reply(refused(*endpoint.dialect, *wrong, headers(call.request)));
  HttpReply reply = std::move(std::get<HttpReply>(handled));
  for (auto& header : headers(call.request)) reply.headers.push_back(std::move(header));
  exchange.reply(std::move(reply));
}

std::optional<ApiError> Service::make_prompts(Ask& ask) const {
  if (!ask.messages.is_null())
    if (auto wrong = make_conversation(*model_, ask)) return wrong;
  for (AskedPrompt& prompt : ask.prompts) {
    if (prompt.tokens.empty()) {
      auto tokens = model_->encode(prompt.text, prompt.add_special);
      if (!tokens.ok()) return ApiError::from(tokens.error());
      prompt.tokens = std::move(*tokens);
    } else if (ask.messages.is_null() && prompt.text.empty()) {
      prompt.text = model_->decode(prompt.tokens);
    }
    truncate_prompt(ask, prompt, context_);
    const auto count = static_cast<int64_t>(prompt.tokens.size());
    if (count == 0) return ApiError{ApiErrorKind::bad_request, "prompt: is empty, and this model adds no start token", "prompt"};
    if (count >= context_) {
      ApiError error{ApiErrorKind::too_long, fmt::format("the prompt has {} tokens, which leaves no room for an answer in a context of {}", count, context_),
                     ask.messages.is_null() ? "prompt" : "messages"};
      error.prompt_tokens = count;
      error.context = context_;
      return error;
    }
  }
  return std::nullopt;
}

// Fills in what a request leaves open, and checks it against the engine.
std::optional<ApiError> Service::complete(Ask& ask) const {
  if (auto wrong = make_prompts(ask)) return wrong;
  if (auto wrong = make_bad_words(*model_, ask)) return wrong;
  if (static_cast<int64_t>(ask.prompts.size()) * ask.request.n > kMostAnswers)
    return ApiError::bad("n", fmt::format("{} prompts with {} answers each are more than {}", ask.prompts.size(), ask.request.n, kMostAnswers));
  if (!ask.seed_given) ask.request.sampling.seed = new_seed();
  double& limit = ask.request.time_limit_seconds;
  limit = options_.timeout_seconds;
  if (ask.timeout_seconds > 0) limit = limit > 0 ? std::min(limit, ask.timeout_seconds) : ask.timeout_seconds;
  for (const AskedPrompt& prompt : ask.prompts) {
    Request request = ask.request;
    request.prompt = prompt.tokens;
    auto good = engine_->check(request);
    if (good.ok()) continue;
    ApiError error = constraint_error(ask, ApiError::from(good.error()));
    if (error.kind == ApiErrorKind::overloaded) error.kind = ApiErrorKind::bad_request;  // more than there will ever be
    return error;
  }
  return std::nullopt;
}

void Service::generate(const Endpoint& endpoint, Ask ask, const HttpRequest& request, const Exchange& exchange) {
  if (ask.only_load) return Generation::start(*this, endpoint, std::move(ask), headers(request), exchange);
  if (auto wrong = complete(ask)) return exchange.reply(refused(*endpoint.dialect, *wrong, headers(request)));
  HttpHeaders head = headers(request);
  head.emplace_back("Millrace-Seed", std::to_string(ask.request.sampling.seed));
  if (ask.truncated_tokens > 0) head.emplace_back("Millrace-Truncated-Tokens", std::to_string(ask.truncated_tokens));
  Generation::start(*this, endpoint, std::move(ask), std::move(head), exchange);
}

}  // namespace millrace
