// One POST over plain HTTP, waited for; on a thread that has nothing else to do.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "server/http.h"

namespace millrace {

struct PostTarget {
  std::string host, port, path;

  // "http://HOST[:PORT][/PATH]"; the path is `default_path` where there is none. Errors: user; unsupported (https).
  static Result<PostTarget> parse(const std::string& what, const std::string& url, const std::string& default_path);
};

struct PostReply {
  int status = 0;
  std::string body;
};

// Errors: resource (no address, no connection, no whole answer within the limit).
Result<PostReply> http_post(const PostTarget& target, const HttpHeaders& headers, const std::string& body, std::chrono::milliseconds limit, size_t most_reply_bytes);

}  // namespace millrace
