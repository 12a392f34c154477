// Url: the target of a load over HTTP.
#pragma once

#include <string>

#include "base/result.h"

namespace millrace {

struct Url {
  std::string host, port;  // for "http://[::1]:8080/base/": ::1, 8080
  std::string path;        // without a trailing slash: /base; often empty

  // "http://HOST[:PORT][/PATH]". Errors: user; unsupported (https).
  static Result<Url> parse(const std::string& text);
  std::string host_header() const;
};

}  // namespace millrace
