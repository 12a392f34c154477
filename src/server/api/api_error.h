// ApiError: why a request was rejected, independent of the API. A Dialect turns it into a status and a body.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "server/http/http.h"

namespace millrace {

enum class ApiErrorKind {
  bad_request,
  too_long,      // the prompt does not fit into the context
  unauthorized,  // missing or wrong key
  forbidden,
  not_found,  // unknown path
  no_model,
  gone,  // the stream of this request was ended by another request
  bad_method,
  too_slow,
  too_large,
  head_too_large,
  unsupported,  // an unsupported feature; 400, so that clients do not retry
  not_built,    // an unsupported endpoint
  overloaded,
  rate_limited,  // over the key's rate limit
  no_quota,      // over the key's quota, permanently or until the next day
  draining,
  busy,  // too many connections
  time_limit,
  no_storage,  // the disk, or this server's or key's part of it, is full
  internal,
};

struct ApiError {
  ApiErrorKind kind = ApiErrorKind::internal;
  std::string message;
  std::string field;          // the invalid field of the request; "": none
  int64_t prompt_tokens = 0;  // for too_long
  int64_t context = 0;
  double expected_ttft = 0;  // seconds; set if the request was rejected for it
  double retry_seconds = 0;  // when to retry; 0: unknown

  static ApiError bad(std::string field, const std::string& why) {
    return {ApiErrorKind::bad_request, field + ": " + why, std::move(field)};
  }
  static ApiError unsupported(std::string field, const std::string& why) {
    return {ApiErrorKind::unsupported, field + ": " + why, std::move(field)};
  }
  static ApiError from(const Error& error);
};

int http_status(ApiErrorKind kind);

// How one API reports errors.
struct Dialect {
  const char* name;   // "OpenAI"
  const char* about;  // one paragraph for the docs
  HttpReply (*refuse)(const ApiError& error);
  // An error after the stream has started, sent as its last event.
  std::string (*refuse_in_stream)(const ApiError& error);
};

}  // namespace millrace
