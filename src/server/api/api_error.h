// ApiError: why a request was refused, before a dialect gives it its shape and status.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "server/http/http.h"

namespace millrace {

enum class ApiErrorKind {
  bad_request,
  too_long,      // a prompt that does not fit
  unauthorized,  // no key, or a wrong one
  forbidden,
  not_found,  // a path
  no_model,
  bad_method,
  too_slow,
  too_large,
  head_too_large,
  unsupported,  // something of a request that is not there: 400, since asking again is of no use
  not_built,    // a whole endpoint that is not there
  overloaded,
  rate_limited,  // a key's limits, for a while
  no_quota,      // ... for good, or until tomorrow
  draining,
  busy,  // no room for its connection
  time_limit,
  internal,
};

struct ApiError {
  ApiErrorKind kind = ApiErrorKind::internal;
  std::string message;
  std::string field;          // the request's field that is wrong; "": none
  int64_t prompt_tokens = 0;  // of too_long
  int64_t context = 0;
  double expected_ttft = 0;  // seconds, of what was refused for it; 0: it was not
  double retry_seconds = 0;  // come again after that; 0: not known

  static ApiError bad(std::string field, const std::string& why) {
    return {ApiErrorKind::bad_request, field + ": " + why, std::move(field)};
  }
  static ApiError unsupported(std::string field, const std::string& why) {
    return {ApiErrorKind::unsupported, field + ": " + why, std::move(field)};
  }
  static ApiError from(const Error& error);
};

int http_status(ApiErrorKind kind);

// One API's manner of refusing.
struct Dialect {
  const char* name;   // "OpenAI"
  const char* about;  // one paragraph for the docs
  HttpReply (*refuse)(const ApiError& error);
  // An error once a stream has begun; sent as its last event.
  std::string (*refuse_in_stream)(const ApiError& error);
};

}  // namespace millrace
