#include "server/api/api_error.h"

#include "base/network_error.h"
#include "base/storage_error.h"

namespace millrace {

// The engine's messages start with the field: "stop: ...", "prompt: ...".
ApiError ApiError::from(const Error& error) {
  ApiError out;
  out.message = error.message;
  switch (error.kind) {
    case ErrorKind::user:
    case ErrorKind::corrupt: out.kind = ApiErrorKind::bad_request; break;
    case ErrorKind::unsupported: out.kind = ApiErrorKind::unsupported; break;
    case ErrorKind::resource: out.kind = ApiErrorKind::overloaded; break;
    default: out.kind = ApiErrorKind::internal;
  }
  if (error.kind == kNetworkError) out.kind = ApiErrorKind::overloaded;
  if (error.kind == kStorageError) out.kind = ApiErrorKind::no_storage;
  const size_t colon = error.message.find(':');
  const std::string_view name = std::string_view(error.message).substr(0, colon == std::string::npos ? 0 : colon);
  if (!name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string_view::npos)
    out.field = name;
  return out;
}

int http_status(ApiErrorKind kind) {
  switch (kind) {
    case ApiErrorKind::bad_request:
    case ApiErrorKind::unsupported:  // every SDK would retry a 5xx
    case ApiErrorKind::too_long: return 400;
    case ApiErrorKind::unauthorized: return 401;
    case ApiErrorKind::forbidden: return 403;
    case ApiErrorKind::not_found:
    case ApiErrorKind::no_model: return 404;
    case ApiErrorKind::gone: return 410;  // no SDK retries it, which would end the stream that replaced this one
    case ApiErrorKind::bad_method: return 405;
    case ApiErrorKind::too_slow: return 408;
    case ApiErrorKind::too_large: return 413;
    case ApiErrorKind::head_too_large: return 431;
    case ApiErrorKind::overloaded:
    case ApiErrorKind::rate_limited:
    case ApiErrorKind::no_quota: return 429;
    case ApiErrorKind::not_built: return 501;
    case ApiErrorKind::draining:
    case ApiErrorKind::busy: return 503;
    case ApiErrorKind::time_limit: return 504;
    case ApiErrorKind::no_storage: return 507;
    case ApiErrorKind::internal: return 500;
  }
  return 500;
}

}  // namespace millrace
