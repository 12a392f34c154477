// One request to a server on this machine: enough to ask another engine's server for an answer.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/result.h"

namespace millrace {

struct LocalReply {
  int status = 0;
  std::string body;
};

inline constexpr std::chrono::seconds kLongestLocalCall{3600};  // an answer comes in one piece

// POST, or GET if there is no body, by HTTP/1.0 to 127.0.0.1. At most 64 MB are read. `wanted` is asked ten times a
// second. Errors: user (no connection, no answer within `limit`), corrupt (no HTTP), cancelled.
Result<LocalReply> local_http_call(int port, const std::string& path, const std::string& body,
                                   const std::function<bool()>& wanted, std::chrono::seconds limit = kLongestLocalCall);

// A port that nothing uses at the moment. Errors: resource.
Result<int> free_local_port();

}  // namespace millrace
