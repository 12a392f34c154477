#include "cluster/router.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <chrono>
#include <random>
#include <thread>

#include "base/json_text.h"
#include "base/start_thread.h"
#include "cluster/forward.h"
#include "cluster/router_metrics.h"
#include "server/access/access.h"
#include "server/api/api.h"
#include "server/generation/answer_identity.h"
#include "server/service.h"

namespace millrace {
namespace {

namespace asio = boost::asio;

constexpr int kIoThreads = 2;

// What needs no state of a node, apart from generation.
constexpr std::string_view kPassedOn[] = {"/v1/models",
                                          "/v1/models/*",
                                          "/v1/embeddings",
                                          "/v2/embed",
                                          "/v2/rerank",
                                          "/score",
                                          "/v1/score",
                                          "/embedding",
                                          "/embeddings",
                                          "/rerank",
                                          "/reranking",
                                          "/v1/rerank",
                                          "/v1/reranking",
                                          "/tokenize",
                                          "/detokenize",
                                          "/apply-template",
                                          "/v1/chat/completions/input_tokens",
                                          "/v1/responses/input_tokens",
                                          "/v1/messages/count_tokens",
                                          "/models",
                                          "/props",
                                          "/techniques",
                                          "/openapi.json",
                                          "/version",
                                          "/ping",
                                          "/api/tags",
                                          "/api/show",
                                          "/api/ps",
                                          "/api/version",
                                          "/api/embed",
                                          "/api/embeddings"};

bool passes_on(const Endpoint& endpoint) {
  if (endpoint.admin) return false;
  return endpoint.format || std::ranges::find(kPassedOn, endpoint.path) != std::end(kPassedOn);
}

// Headers that belong to the client's connection or key, or that the router sets itself.
bool is_of_client(std::string_view name) {
  static constexpr std::string_view kOwn[] = {"authorization",
                                              "connection",
                                              "content-length",
                                              "cookie",
                                              "expect",
                                              "host",
                                              "keep-alive",
                                              "millrace-answer",
                                              "millrace-blocks",
                                              "millrace-prefill",
                                              "origin",
                                              "proxy-authorization",
                                              "te",
                                              "trailer",
                                              "transfer-encoding",
                                              "upgrade",
                                              "x-api-key",
                                              "x-conversation-id",
                                              "x-request-id"};
  return std::ranges::find(kOwn, name) != std::end(kOwn) || name.starts_with("sec-fetch-") ||
         name.starts_with("x-forwarded-");
}

std::string percent_encoded(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/-._~:@!$&'()*+,;=").find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::mt19937_64& random_source() {
  thread_local std::mt19937_64 source{std::random_device{}() ^ (static_cast<uint64_t>(std::random_device{}()) << 32)};
  return source;
}

// The fields whose text comes first in a model's prompt, in that order.
std::string prompt_text(const Json& body) {
  std::string out;
  for (const char* field : {"system", "instructions", "tools", "messages", "input", "prompt"})
    if (const auto found = body.find(field); found != body.end())
      out +=
          found->is_string() ? found->get<std::string>() : found->dump(-1, ' ', false, Json::error_handler_t::replace);
  return out;
}

uint64_t session_of(const HttpRequest& request, const Json& body) {
  std::string text(request.header("x-conversation-id"));
  for (const char* field : {"prompt_cache_key", "user"})
    if (const auto found = body.find(field); text.empty() && found != body.end() && found->is_string())
      text = found->get<std::string>();
  return text.empty() ? 0 : XXH3_64bits(text.data(), text.size());
}

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

struct ClusterRouter::State {
  explicit State(RouterOptions given)
      : options(std::move(given)), access(options.keys), nodes(io, options.nodes, options.table) {}

  // `io` outlives what runs on it.
  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> stay{io.get_executor()};
  RouterOptions options;
  Access access;
  PrefixMemory memory;
  ForwardCounts counts;
  NodeTable nodes;
  std::atomic<uint64_t> numbers{0};
  std::vector<std::thread> threads;

  HttpReply refused(const std::string& path, const ApiError& error) const {
    HttpReply reply = dialect_of_path(path).refuse(error);
    if (error.kind == ApiErrorKind::unauthorized) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  std::optional<HttpReply> admit(HttpRequest& request);
  void handle(HttpRequest request, const Exchange& exchange);
  std::optional<HttpReply> own_answer(const HttpRequest& request);
  HttpReply drain_node(const HttpRequest& request);
  std::optional<ApiError> check(const HttpRequest& request, const Json& body) const;
  ForwardedRequest forwarded(HttpRequest request, const Endpoint& endpoint, const Json& body);
};

std::optional<HttpReply> ClusterRouter::State::admit(HttpRequest& request) {
  std::string rest;
  bool wrong_method = false;
  const bool drains = request.path == "/cluster/drain";
  const bool own = drains || request.path == "/cluster";
  const Endpoint* endpoint = own ? nullptr : find_endpoint(request.method, request.path, &rest, &wrong_method);
  if (!access.open()) {
    const Role needed = drains ? Role::admin : own ? Role::user : needed_role(endpoint, Role::user);
    request.account = access.find(request);
    if (needed != Role::none && !request.account)
      return refused(request.path, {ApiErrorKind::unauthorized,
                                    "a valid API key is required: send it as 'Authorization: Bearer KEY' or "
                                    "'x-api-key: KEY'",
                                    ""});
    if (needed == Role::admin && !request.account->key().admin)
      return refused(request.path, {ApiErrorKind::forbidden,
                                    fmt::format("{}: requires a key with the role admin", request.path), ""});
  }
  if (own) return std::nullopt;
  if (!endpoint)
    return refused(request.path,
                   {ApiErrorKind::not_found, fmt::format("{}: no such path", request.path.substr(0, 200)), ""});
  if (wrong_method)
    return refused(request.path, {ApiErrorKind::bad_method,
                                  fmt::format("{}: supports {}", request.path.substr(0, 200), endpoint->method), ""});
  if (request.account && request.method == "POST")
    if (auto wrong = request.account->take_request(unix_now())) return refused(request.path, *wrong);
  return std::nullopt;
}

// The router's own paths.
std::optional<HttpReply> ClusterRouter::State::own_answer(const HttpRequest& request) {
  if (request.path == "/cluster") {
    Json list = Json::array();
    for (const NodeView& node : nodes.view())
      list.push_back({{"name", node.name},
                      {"url", node.url},
                      {"role", node_role_name(node.role)},
                      {"state", node_state_name(node.state)},
                      {"drained", node.drained},
                      {"running", node.open},
                      {"requests", node.requests},
                      {"failures", node.failures},
                      {"why", node.why}});
    return HttpReply{.body = Json{{"route", options.route->name}, {"nodes", std::move(list)}}.dump()};
  }
  if (request.path == "/cluster/drain") return drain_node(request);
  if (request.path == "/health/live") return HttpReply{.body = R"({"status":"ok"})"};
  if (request.path == "/health" || request.path == "/v1/health" || request.path == "/health/ready") {
    const bool ready = nodes.any_ready();
    return HttpReply{.status = ready ? 200 : 503,
                     .body = ready ? R"({"status":"ok"})" : R"({"status":"no node is ready"})"};
  }
  if (request.path == "/metrics")
    return HttpReply{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                     .body = router_metrics(nodes.view(), counts)};
  return std::nullopt;
}

HttpReply ClusterRouter::State::drain_node(const HttpRequest& request) {
  const Json body = parse_json(request.body);
  if (request.method != "POST" || !body.is_object() || !body.contains("node") || !body["node"].is_string() ||
      (body.contains("drained") && !body["drained"].is_boolean()))
    return refused(request.path, {ApiErrorKind::bad_request,
                                  "/cluster/drain: expects POST {\"node\": NAME, \"drained\": true or false}", ""});
  const std::string name = body["node"].get<std::string>();
  if (nodes.drain(name, body.value("drained", true))) return HttpReply{.body = R"({"status":"ok"})"};
  return refused(request.path,
                 {ApiErrorKind::not_found, fmt::format("there is no node '{}'", name.substr(0, 200)), "node"});
}

std::optional<ApiError> ClusterRouter::State::check(const HttpRequest& request, const Json& body) const {
  if (request.method == "POST" && body.is_discarded())
    return ApiError{ApiErrorKind::bad_request, "the body is not JSON", ""};
  if (const auto found = body.is_object() ? body.find("previous_response_id") : body.end();
      body.is_object() && found != body.end() && !found->is_null())
    return ApiError::unsupported("previous_response_id",
                                 "a router keeps no responses; send the whole conversation as 'input'");
  return std::nullopt;
}

ForwardedRequest ClusterRouter::State::forwarded(HttpRequest request, const Endpoint& endpoint, const Json& body) {
  const std::string id = fmt::format("{:016x}{:08x}", random_source()(), static_cast<uint32_t>(random_source()()));
  const AnswerIdentity identity{id, static_cast<int64_t>(unix_now()), random_source()() >> 11};
  ForwardedRequest out;
  out.dialect = endpoint.dialect;
  out.generates = endpoint.format != nullptr;
  if (endpoint.format) out.ping = endpoint.format->ping;
  out.number = numbers++;
  if (body.is_object()) {
    out.session = session_of(request, body);
    out.prefix = prefix_digests(prompt_text(body));
  }
  const std::string_view given = request.header("x-request-id");
  out.headers = {{"X-Request-Id", Service::is_id(given) ? std::string(given) : id}};
  out.request.method = request.method == "HEAD" ? "GET" : request.method;
  out.request.target = percent_encoded(request.path) + (request.query.empty() ? "" : "?" + request.query);
  for (auto& [name, value] : request.headers)
    if (!is_of_client(name)) out.request.headers.emplace_back(name, value);
  out.request.headers.emplace_back("X-Request-Id", out.headers.front().second);
  out.request.headers.emplace_back(AnswerIdentity::kHeader, identity.text());
  if (!options.table.key.empty()) out.request.headers.emplace_back("Authorization", "Bearer " + options.table.key);
  out.request.body = std::move(request.body);
  return out;
}

void ClusterRouter::State::handle(HttpRequest request, const Exchange& exchange) {
  if (auto own = own_answer(request)) return exchange.reply(std::move(*own));
  std::string rest;
  bool wrong_method = false;
  const Endpoint* endpoint = find_endpoint(request.method, request.path, &rest, &wrong_method);
  if (!endpoint || wrong_method || !passes_on(*endpoint))
    return exchange.reply(refused(
        request.path, {ApiErrorKind::not_built,
                       fmt::format("{}: a router does not pass this on; ask a node itself", request.path), ""}));
  const Json body = request.body.empty() ? Json(nullptr) : parse_json(request.body);
  if (const auto wrong = check(request, body)) return exchange.reply(refused(request.path, *wrong));
  begin_forward({io, nodes, memory, counts, options.route, options.wait_seconds, options.most_losses},
                forwarded(std::move(request), *endpoint, body), exchange);
}

ClusterRouter::ClusterRouter() = default;

Result<std::unique_ptr<ClusterRouter>> ClusterRouter::start(RouterOptions options, const HttpLimits& limits,
                                                            std::shared_ptr<const TlsContext> tls) {
  if (std::ranges::all_of(options.nodes, [](const ClusterNode& node) { return node.role == NodeRole::store; }))
    return Error::user("a router needs at least one node that is not a store");
  auto router = std::unique_ptr<ClusterRouter>(new ClusterRouter());
  router->state_ = std::make_unique<State>(std::move(options));
  State* state = router->state_.get();
  for (int i = 0; i < kIoThreads; ++i) {
    MILLRACE_TRY(std::thread thread, start_thread("router", [state] { state->io.run(); }));
    state->threads.push_back(std::move(thread));
  }
  state->nodes.start();
  HttpHandler handler{
      [state](HttpRequest& request) { return state->admit(request); },
      [state](HttpRequest request, Exchange exchange) { state->handle(std::move(request), exchange); },
      [state](const HttpRequest& request, int status, const std::string& message) {
        HttpReply reply = state->refused(request.path, {ApiErrorKind::bad_request, message, ""});
        reply.status = status;
        return reply;
      },
      [state](const HttpRequest& request) {
        const ApiError error{ApiErrorKind::draining, "the router is shutting down", ""};
        return FinalReply{state->refused(request.path, error), dialect_of_path(request.path).refuse_in_stream(error)};
      }};
  MILLRACE_TRY(router->http_, HttpServer::start(limits, std::move(handler), std::move(tls)));
  return router;
}

// Requests that have not ended lie in `io` with their connections, whose destructors use the HTTP server.
ClusterRouter::~ClusterRouter() {
  if (http_) http_->stop();
  if (!state_) return;
  state_->nodes.stop();
  state_->stay.reset();
  state_->io.stop();
  for (std::thread& thread : state_->threads) thread.join();
  state_.reset();
  http_.reset();
}

NodeTable& ClusterRouter::nodes() { return state_->nodes; }

}  // namespace millrace
