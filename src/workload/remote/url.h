// Url: the HTTP address to which a load is sent.
#pragma once

#include <string>

#include "base/result.h"

namespace millrace {

struct Url {
  std::string host, port;  // for "http://[::1]:8080/base/": ::1, 8080
  std::string path;        // without a trailing slash: /base; often empty

  // Parses "http://HOST[:PORT][/PATH]". Errors: user (a malformed URL), unsupported (https).
  static Result<Url> parse(const std::string& text);
  std::string host_header() const;
};

}  // namespace millrace
