// HTTP/1.1 GET for downloads from a hub. TLS certificates are verified against the system's authorities. Uses sockets,
// OpenSSL and the parser of Boost.Beast. Blocking, one connection per request.
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
  std::string host;  // an IPv6 address without brackets
  std::string port;
  std::string target = "/";  // path and query

  std::string origin() const;  // "https://host:port"
  std::string text() const { return origin() + target; }
};

// Errors: user (not http:// or https://, no host, spaces or control characters).
Result<HubUrl> parse_hub_url(std::string_view text);
// Resolves the `location` header of an answer from `base`. Errors: those of parse_hub_url(), user (a redirect from
// https to http).
Result<HubUrl> redirect_url(const HubUrl& base, std::string_view location);

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string header(const std::string& name) const;  // "" when absent
};

struct HttpGet {
  std::vector<std::pair<std::string, std::string>> headers;
  std::string bearer;           // sent to the first host only, not to redirect targets
  double timeout_seconds = 30;  // maximum time without receiving a byte
  int most_redirects = 5;
  // Returns true to give up while bytes are awaited; called several times a second; may be null.
  std::function<bool()> stopped = {};
  // Receives the body in parts, but not the bodies of redirects. Returns false to stop and close the connection.
  std::function<bool(const HttpAnswer&, std::string_view)> body;
};

// Sends the request and follows redirects. `last`: if not null, set to the URL of the final answer. Errors: network (no
// connection, connection lost, timeout), corrupt (the answer is not HTTP), user (an invalid URL, too many redirects).
Result<HttpAnswer> http_get(const HubUrl& url, const HttpGet& get, HubUrl* last = nullptr);

}  // namespace millrace
