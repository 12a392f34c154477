#include "workload/remote/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace millrace {

Result<Url> Url::parse(const std::string& text) {
  const Error bad = Error::user(fmt::format("url: must be http://HOST[:PORT][/PATH], got '{}'", text.substr(0, 200)));
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://"))
    return Error::unsupported("url: https is not supported; give the http address behind the TLS proxy");
  if (!text.starts_with(kScheme) || text.size() > 2000) return bad;
  if (std::ranges::any_of(text, [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || c == 0x7f || c == '#' || c == '?' || c == '@';
      }))
    return bad;
  std::string_view rest = std::string_view(text).substr(kScheme.size());
  const size_t slash = rest.find('/');
  Url url;
  if (slash != std::string_view::npos) url.path = rest.substr(slash);
  rest = rest.substr(0, slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  const size_t end = rest.starts_with('[') ? rest.find(']') : rest.find(':');
  if (rest.starts_with('[') && end == std::string_view::npos) return bad;
  if (rest.starts_with('[')) {
    url.host = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
  } else {
    url.host = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), url.host.size()));
  }
  url.port = "80";
  if (!rest.empty()) {
    int port = 0;
    if (rest.front() != ':') return bad;
    rest.remove_prefix(1);
    const auto [at, error] = std::from_chars(rest.data(), rest.data() + rest.size(), port);
    if (error != std::errc() || at != rest.data() + rest.size() || port < 1 || port > 65535) return bad;
    url.port = fmt::format("{}", port);
  }
  if (url.host.empty()) return bad;
  return url;
}

std::string Url::host_header() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == "80" ? name : name + ":" + port;
}

}  // namespace millrace
