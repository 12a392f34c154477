// The part of Service that admits or rejects a request from its head alone, and formats errors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "server/page.h"
#include "server/service.h"

namespace millrace {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;

ApiErrorKind kind_of_status(int status) {
  switch (status) {
    case 408: return ApiErrorKind::too_slow;
    case 413: return ApiErrorKind::too_large;
    case 429: return ApiErrorKind::overloaded;
    case 501: return ApiErrorKind::unsupported;
    case 503: return ApiErrorKind::busy;
    case 431: return ApiErrorKind::head_too_large;
    default: return ApiErrorKind::bad_request;
  }
}

// The Retry-After of an error in seconds; 0: unknown.
int64_t retry_after(const ApiError& error, double place_seconds) {
  if (error.retry_seconds > 0) return static_cast<int64_t>(std::ceil(std::min(error.retry_seconds, 1e6)));
  if (error.kind == ApiErrorKind::draining) return 5;
  if (error.kind == ApiErrorKind::busy) return 1;
  if (error.kind != ApiErrorKind::overloaded) return 0;
  return static_cast<int64_t>(std::ceil(std::clamp(place_seconds, 1.0, 600.0)));  // a stream should have ended by then
}

// Whether a Host header names an address or localhost. Protects against DNS rebinding: a web page can make its own name
// resolve to 127.0.0.1, but the browser still sends that name.
bool is_local_name(std::string_view host) {
  if (host.empty() || host.starts_with('[')) return true;
  host = host.substr(0, host.rfind(':'));
  return host == "localhost" || host.ends_with(".localhost") ||
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

// Whether a browser sends the request for a page of another site. Browsers set Sec-Fetch-Site on every request, even
// for scripts and images, which have no Origin, and pages cannot change it. Other programs do not send it.
bool is_cross_site(const HttpRequest& request) {
  const std::string_view site = request.header("sec-fetch-site");
  return !site.empty() && site != "same-origin" && site != "none";
}

// The headers that pages of an allowed origin may send: all that the browser asks for, because SDKs add headers of
// their own, and this server ignores the ones it does not know.
std::string allowed_headers(const HttpRequest& request) {
  std::string out = "authorization, content-type, x-api-key, x-request-id, anthropic-version, anthropic-beta";
  const std::string_view asked = request.header("access-control-request-headers");
  const bool plain = std::ranges::all_of(asked, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == ',' || c == ' ';
  });
  if (!asked.empty() && plain) out.append(", ").append(asked);
  return out;
}

// Whether the origin is the one that the browser sees this server at. Behind a proxy that does not pass the Host header
// on, Sec-Fetch-Site says so, or, from a trusted proxy, X-Forwarded-Host.
bool is_own_origin(const HttpRequest& request, std::string_view origin) {
  return origin.ends_with("://" + std::string(request.header("host"))) ||
         request.header("sec-fetch-site") == "same-origin" ||
         (request.by_trusted_proxy && !request.header("x-forwarded-host").empty() &&
          origin.ends_with("://" + std::string(request.header("x-forwarded-host"))));
}

}  // namespace

// Authenticates and authorizes the request.
std::optional<ApiError> Service::admit_caller(const Endpoint* endpoint, HttpRequest& request) const {
  if (access_.open()) return std::nullopt;
  const Role needed = needed_role(endpoint, live()->metrics_role);
  request.account = access_.find(request);
  if (needed == Role::none) return std::nullopt;
  if (!request.account)
    return ApiError{ApiErrorKind::unauthorized,
                    "a valid API key is required: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'", ""};
  if (needed == Role::admin && !request.account->key().admin)
    return ApiError{ApiErrorKind::forbidden,
                    fmt::format("{}: requires a key with the role admin", request.path.substr(0, 200)), ""};
  return std::nullopt;
}

bool Service::origin_allowed(std::string_view origin) const {
  return std::ranges::any_of(live()->origins,
                             [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

bool Service::is_id(std::string_view text) {
  return !text.empty() && text.size() <= kMaxRequestIdBytes &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

HttpHeaders Service::headers(const HttpRequest& request) const {
  const std::string_view given = request.header("x-request-id");
  HttpHeaders out = {{"X-Request-Id", is_id(given) ? std::string(given) : new_id()}};
  if (request.account)
    for (auto& header : request.account->headers(unix_seconds())) out.push_back(std::move(header));
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && origin_allowed(origin)) {
    out.emplace_back("Access-Control-Allow-Origin", std::string(origin));
    out.emplace_back("Vary", "Origin");
  }
  return out;
}

HttpReply Service::refuse(const HttpRequest& request, int status, const std::string& message) const {
  HttpReply reply = refused(dialect_of_path(request.path), {kind_of_status(status), message, ""}, headers(request));
  if (status == 501) reply.status = 501;  // an unsupported transfer encoding, not an unsupported API feature
  return reply;
}

FinalReply Service::shutdown_message(const HttpRequest& request) const {
  const ApiError error{ApiErrorKind::draining, "the server is shutting down", ""};
  std::string rest;
  bool wrong_method = false;
  const Endpoint* endpoint = find_endpoint(request.method, request.path, &rest, &wrong_method);
  const Dialect& dialect = endpoint ? *endpoint->dialect : dialect_of_path(request.path);
  return {refused(dialect, error, headers(request)), dialect.refuse_in_stream(error)};
}

// For the busiest model: the requested one is not always known.
double Service::place_seconds() const {
  double most = 0;
  for (const auto& model : models_->loaded()) most = std::max(most, model->wait->place_seconds());
  return most;
}

HttpReply Service::refused(const Dialect& dialect, const ApiError& error, HttpHeaders headers) const {
  metrics().refused(error.kind);
  HttpReply reply = dialect.refuse(error);
  reply.error = error_kind_name(error.kind);
  reply.why = error.message;
  reply.headers = std::move(headers);
  if (error.kind == ApiErrorKind::unauthorized) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.expected_ttft > 0)
    reply.headers.emplace_back("Millrace-Expected-TTFT", fmt::format("{:.6f}", error.expected_ttft));
  if (error.kind == ApiErrorKind::no_quota) reply.headers.emplace_back("x-should-retry", "false");
  if (const int64_t seconds = retry_after(error, error.kind == ApiErrorKind::overloaded ? place_seconds() : 0);
      seconds > 0)
    reply.headers.emplace_back("Retry-After", std::to_string(seconds));
  return reply;
}

// Everything that can be decided from the head alone.
std::optional<HttpReply> Service::admit(HttpRequest& request) const {
  const auto refused_for = [&](ApiErrorKind kind, const std::string& message) {
    return refused(dialect_of_path(request.path), {kind, message, ""}, headers(request));
  };
  const std::string_view origin = request.header("origin");
  if (request.method == "OPTIONS" && !origin.empty() && origin_allowed(origin)) {
    HttpReply reply{.status = 204, .content_type = "", .headers = headers(request)};
    reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    reply.headers.emplace_back("Access-Control-Allow-Headers", allowed_headers(request));
    reply.headers.emplace_back("Access-Control-Max-Age", "600");
    return reply;
  }
  std::string rest;
  bool wrong_method = false;
  const Endpoint* endpoint = find_endpoint(request.method, request.path, &rest, &wrong_method);
  const bool page = options_.page && asks_for_page(request);
  if (!page) {
    if (auto wrong = admit_caller(endpoint, request))
      return refused(dialect_of_path(request.path), *wrong, headers(request));
  }
  if (!endpoint)
    return refused_for(ApiErrorKind::not_found, fmt::format("{}: no such path", request.path.substr(0, 200)));
  if (wrong_method) {
    auto reply = refused_for(ApiErrorKind::bad_method, fmt::format("{}: supports {}, not {}", request.path,
                                                                   endpoint->method, request.method.substr(0, 20)));
    reply.headers.emplace_back("Allow", endpoint->method);
    return reply;
  }
  if (options_.local_only && !request.by_trusted_proxy && !is_local_name(request.header("host")))
    return refused_for(
        ApiErrorKind::forbidden,
        fmt::format("host '{}': this server only accepts local requests; configure API keys or use --allow-public",
                    request.header("host").substr(0, 200)));
  if (!origin.empty() && access_.open() && !endpoint->open && !origin_allowed(origin) &&
      !is_own_origin(request, origin))
    return refused_for(
        ApiErrorKind::forbidden,
        fmt::format("origin '{}': cross-origin requests are not allowed; --cors-origin permits an origin",
                    origin.substr(0, 200)));
  if (is_cross_site(request) && access_.open() && !endpoint->open && !page &&
      !(!origin.empty() && origin_allowed(origin)))
    return refused_for(ApiErrorKind::forbidden,
                       "Sec-Fetch-Site: cross-origin requests are not allowed; --cors-origin permits an origin");
  if (draining_ && !endpoint->open) return refused_for(ApiErrorKind::draining, "the server is shutting down");
  if (request.account && request.method == "POST")
    if (auto wrong = request.account->take_request(unix_seconds()))
      return refused(dialect_of_path(request.path), *wrong, headers(request));
  return std::nullopt;
}

}  // namespace millrace
