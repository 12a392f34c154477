// GET over HTTP/1.1, with TLS against the system's certificate authorities: what fetching files from a hub needs.
// Sockets and OpenSSL by hand, the protocol by Beast's parser. Blocking, a connection a request.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

struct HubUrl {
  bool tls = false;
  std::string host;  // of an IPv6 address without its brackets
  std::string port;
  std::string target = "/";  // path and query

  std::string origin() const;  // "https://host:port"
  std::string text() const { return origin() + target; }
};

// Errors: user (not http:// or https://, no host, spaces or control characters).
Result<HubUrl> parse_hub_url(std::string_view text);
// What `location` means in an answer from `base`. Errors: as parse_hub_url; user (from https to http).
Result<HubUrl> redirect_url(const HubUrl& base, std::string_view location);

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string header(const std::string& name) const;  // "" when absent
};

struct HttpGet {
  std::vector<std::pair<std::string, std::string>> headers;
  std::string bearer;           // sent to the first host only, wherever it redirects to
  double timeout_seconds = 30;  // without a byte
  int most_redirects = 5;
  // The body as it comes, redirects' excluded; false: enough, the connection is closed.
  std::function<bool(const HttpAnswer&, std::string_view)> body;
};

// Follows redirects. `*last`, if not null, is where the answer came from. Errors: resource (no connection, cut, timed
// out), corrupt (no HTTP), user (the URL, too many redirects).
Result<HttpAnswer> http_get(const HubUrl& url, const HttpGet& get, HubUrl* last = nullptr);

}  // namespace millrace
