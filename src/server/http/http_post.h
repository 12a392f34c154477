// One POST over HTTP or HTTPS, waited for; on a thread that has nothing else to do.
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
  std::shared_ptr<ssl_ctx_st> tls;  // null: plain. The other side must prove to be `host`

  // "http[s]://HOST[:PORT][/PATH]"; the path is `default_path` where there is none. Under TLS the system's authorities
  // are trusted, those of SSL_CERT_FILE and SSL_CERT_DIR, or those of `ca_file` alone. Errors: user.
  static Result<PostTarget> parse(const std::string& what, const std::string& url, const std::string& default_path,
                                  const std::string& ca_file = "");
};

struct PostReply {
  int status = 0;
  std::string body;
};

// Errors: resource (no address, no connection, a certificate that proves nothing, no whole answer within the limit).
Result<PostReply> http_post(const PostTarget& target, const HttpHeaders& headers, const std::string& body,
                            std::chrono::milliseconds limit, size_t most_reply_bytes);

}  // namespace millrace
