// A minimal HTTP client for requests to another engine's server on this machine.
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

inline constexpr std::chrono::seconds kLongestLocalCall{3600};  // long, because an answer is received as a whole

// Sends a request to 127.0.0.1 by HTTP/1.0: POST, or GET if `body` is empty. Reads at most 64 MB. Calls `wanted` ten
// times a second; false cancels the request. Errors: user (no connection, or no reply within `limit`), corrupt (the
// reply is not HTTP), cancelled.
Result<LocalReply> local_http_call(int port, const std::string& path, const std::string& body,
                                   const std::function<bool()>& wanted, std::chrono::seconds limit = kLongestLocalCall);

// Returns a port that is currently unused. Errors: resource.
Result<int> free_local_port();

}  // namespace millrace
