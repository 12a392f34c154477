// A blocking POST over HTTP or HTTPS, for background threads.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http/http.h"

struct ssl_ctx_st;

namespace millrace {

struct PostTarget {
  std::string host, port, path;
  std::shared_ptr<ssl_ctx_st> tls;  // null: plain HTTP. The peer's certificate must match `host`

  // Parses "http[s]://HOST[:PORT][/PATH]"; the default path is `default_path`. TLS trusts the certificate authorities
  // of the system, SSL_CERT_FILE and SSL_CERT_DIR, or only those in `ca_file` if given. Errors: user.
  static Result<PostTarget> parse(const std::string& what, const std::string& url, const std::string& default_path,
                                  const std::string& ca_file = "");
};

struct PostReply {
  int status = 0;
  std::string body;
};

// Errors: network (name not resolved, no connection, certificate not verified, no complete answer within the limit).
Result<PostReply> http_post(const PostTarget& target, const HttpHeaders& headers, const std::string& body,
                            std::chrono::milliseconds limit, size_t most_reply_bytes);

}  // namespace millrace
