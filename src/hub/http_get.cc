#include "hub/http_get.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/network_error.h"
#include "base/system.h"

namespace millrace {
namespace {

namespace http = boost::beast::http;
using ErrorCode = boost::beast::error_code;
using View = boost::beast::string_view;

constexpr size_t kMaxHeaderBytes = 64 << 10;
constexpr double kStopPollMs = 200;  // how often a wait asks whether the caller gives up

// Passes the body to `body` as it arrives.
class AnswerParser : public http::basic_parser<false> {
 public:
  explicit AnswerParser(std::function<bool(const HttpAnswer&, std::string_view)> body) : body_(std::move(body)) {
    eager(true);
    header_limit(kMaxHeaderBytes);
    body_limit(boost::none);
  }
  HttpAnswer answer;
  bool enough = false;

 private:
  size_t take(View bytes, ErrorCode& failed) {
    if (body_ && !body_(answer, {bytes.data(), bytes.size()})) {
      enough = true;
      failed = http::error::end_of_stream;
    }
    return bytes.size();
  }
  void on_request_impl(http::verb, View, View, int, ErrorCode&) override {}
  void on_response_impl(int code, View, int, ErrorCode&) override { answer.status = code; }
  void on_field_impl(http::field, View name, View value, ErrorCode&) override {
    std::string lower(name.data(), name.size());
    std::ranges::transform(lower, lower.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    answer.headers[lower] = std::string(value.data(), value.size());
  }
  void on_header_impl(ErrorCode&) override {}
  void on_body_init_impl(boost::optional<std::uint64_t> const&, ErrorCode&) override {}
  size_t on_body_impl(View bytes, ErrorCode& failed) override { return take(bytes, failed); }
  void on_chunk_header_impl(std::uint64_t, View, ErrorCode&) override {}
  size_t on_chunk_body_impl(std::uint64_t, View bytes, ErrorCode& failed) override { return take(bytes, failed); }
  void on_finish_impl(ErrorCode&) override {}

  std::function<bool(const HttpAnswer&, std::string_view)> body_;
};

struct FreeTls {
  void operator()(SSL* tls) const { SSL_free(tls); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

std::string tls_error() {
  const unsigned long code = ERR_get_error();
  char text[256] = "handshake failed";
  if (code != 0) ERR_error_string_n(code, text, sizeof(text));
  return text;
}

// One connection; the destructor closes it.
class Connection {
 public:
  Connection(const HubUrl& url, const HttpGet& get) : url_(url), get_(get) {}
  ~Connection() {
    tls_.reset();
    if (socket_ >= 0) ::close(socket_);
  }
  Connection(const Connection&) = delete;

  Result<void> open() {
    addrinfo wish{}, *found = nullptr;
    wish.ai_socktype = SOCK_STREAM;
    if (const int failed = ::getaddrinfo(url_.host.c_str(), url_.port.c_str(), &wish, &found); failed != 0)
      return lost(::gai_strerror(failed));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
    std::string why = "no address";
    for (const addrinfo* address = found; address && socket_ < 0; address = address->ai_next) {
      socket_ = open_socket(address->ai_family, address->ai_socktype, address->ai_protocol);
      if (socket_ < 0 || connected(*address, &why)) continue;
      ::close(socket_);
      socket_ = -1;
    }
    if (socket_ < 0) return lost(why);
    return url_.tls ? open_tls() : Result<void>();
  }

  Result<void> send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto most = static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20));
      const ssize_t sent = tls_ ? SSL_write(tls_.get(), bytes.data(), most)
                                : send_quietly(socket_, bytes.data(), static_cast<size_t>(most));
      if (sent <= 0) return lost("cannot send the request");
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return {};
  }

  // 0: the peer closed the connection.
  Result<size_t> receive(char* into, size_t size) {
    const bool buffered = tls_ && SSL_pending(tls_.get()) > 0;
    if (!buffered && !is_ready(POLLIN)) return lost("timed out").error();
    const ssize_t got = tls_ ? SSL_read(tls_.get(), into, static_cast<int>(size)) : ::recv(socket_, into, size, 0);
    if (got > 0) return static_cast<size_t>(got);
    if (!tls_)
      return got == 0 ? Result<size_t>(size_t{0})
                      : lost(errno == EAGAIN || errno == EWOULDBLOCK ? "timed out" : std::strerror(errno)).error();
    const int why = SSL_get_error(tls_.get(), static_cast<int>(got));
    if (why == SSL_ERROR_ZERO_RETURN) return size_t{0};
    return lost(why == SSL_ERROR_WANT_READ ? "timed out" : "the connection was lost").error();
  }

 private:
  Result<void> lost(const std::string& why) const { return network_error(fmt::format("{}: {}", url_.origin(), why)); }

  // Waits until the socket can be read or written. Returns false if that takes longer than the limit, or if the caller
  // gives up.
  bool is_ready(short events) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(get_.timeout_seconds);
    for (;;) {
      const std::chrono::duration<double, std::milli> left = end - std::chrono::steady_clock::now();
      if ((get_.stopped && get_.stopped()) || left.count() <= 0) return false;
      pollfd ready{socket_, events, 0};
      const int found = ::poll(&ready, 1, static_cast<int>(std::min(left.count() + 1, kStopPollMs)));
      if (found > 0 || (found < 0 && errno != EINTR)) return true;
    }
  }

  bool connected(const addrinfo& address, std::string* why) {
    if (::connect(socket_, address.ai_addr, address.ai_addrlen) != 0) {
      int failed = errno;
      if (failed == EINPROGRESS) {
        socklen_t size = sizeof(failed);
        if (!is_ready(POLLOUT)) {
          failed = ETIMEDOUT;
        } else {
          ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &failed, &size);
        }
      }
      if (failed != 0) {
        *why = std::strerror(failed);
        return false;
      }
    }
    const int blocking = ::fcntl(socket_, F_GETFL) & ~O_NONBLOCK;
    ::fcntl(socket_, F_SETFL, blocking);
    const double timeout = get_.timeout_seconds;
    const timeval limit{static_cast<time_t>(timeout),
                        static_cast<suseconds_t>((timeout - static_cast<double>(static_cast<time_t>(timeout))) * 1e6)};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    return true;
  }

  // Verifies against the system's authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR.
  Result<void> open_tls() {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    if (!context_) return lost(tls_error());
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    SSL_CTX_set_default_verify_paths(context_.get());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    tls_.reset(SSL_new(context_.get()));
    if (!tls_) return lost(tls_error());
    in6_addr scratch;
    const bool address = ::inet_pton(AF_INET, url_.host.c_str(), &scratch) == 1 ||
                         ::inet_pton(AF_INET6, url_.host.c_str(), &scratch) == 1;
    if (address) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_.get()), url_.host.c_str());
    } else {
      SSL_set1_host(tls_.get(), url_.host.c_str());
      SSL_set_tlsext_host_name(tls_.get(), url_.host.c_str());
    }
    if (SSL_set_fd(tls_.get(), socket_) != 1 || SSL_connect(tls_.get()) != 1) {
      const long verified = SSL_get_verify_result(tls_.get());
      return lost(verified != X509_V_OK
                      ? fmt::format("its certificate is not trusted: {}", X509_verify_cert_error_string(verified))
                      : "TLS: " + tls_error());
    }
    return {};
  }

  const HubUrl& url_;
  const HttpGet& get_;
  int socket_ = -1;
  std::unique_ptr<SSL_CTX, FreeTls> context_;
  std::unique_ptr<SSL, FreeTls> tls_;
};

Result<HttpAnswer> get_once(const HubUrl& url, const HttpGet& get, bool with_bearer) {
  Connection connection(url, get);
  MILLRACE_TRY_VOID(connection.open());
  const bool usual = url.port == (url.tls ? "443" : "80");
  const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  std::string head = fmt::format(
      "GET {} HTTP/1.1\r\nHost: {}{}\r\nUser-Agent: millrace\r\nAccept: */*\r\nAccept-Encoding: "
      "identity\r\nConnection: close\r\n",
      url.target, host, usual ? "" : ":" + url.port);
  for (const auto& [name, value] : get.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (with_bearer && !get.bearer.empty()) head += fmt::format("Authorization: Bearer {}\r\n", get.bearer);
  MILLRACE_TRY_VOID(connection.send(head + "\r\n"));
  const auto redirects = [](int status) { return status >= 300 && status < 400; };
  AnswerParser parser([&](const HttpAnswer& answer, std::string_view bytes) {
    return !redirects(answer.status) && (!get.body || get.body(answer, bytes));
  });
  std::string held;
  char bytes[64 << 10];
  while (!parser.is_done() && !parser.enough) {
    MILLRACE_TRY(const size_t got, connection.receive(bytes, sizeof(bytes)));
    ErrorCode failed;
    if (got == 0) {
      parser.put_eof(failed);
      if (failed || !parser.is_done())
        return network_error(fmt::format("{}: the connection closed in the middle of the answer", url.origin()));
      break;
    }
    held.append(bytes, got);
    while (!held.empty() && !parser.is_done() && !parser.enough) {
      failed = {};
      const size_t used = parser.put(boost::asio::buffer(held), failed);
      held.erase(0, used);
      if (parser.enough || failed == http::error::need_more) break;
      if (failed) return Error::corrupt(fmt::format("{}: the answer is not HTTP: {}", url.origin(), failed.message()));
      if (used == 0) break;
    }
  }
  return std::move(parser.answer);
}

}  // namespace

std::string HubUrl::origin() const {
  return fmt::format("{}://{}:{}", tls ? "https" : "http",
                     host.find(':') == std::string::npos ? host : "[" + host + "]", port);
}

std::string HttpAnswer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Result<HubUrl> parse_hub_url(std::string_view text) {
  const Error bad =
      Error::user(fmt::format("URL: expected http://HOST or https://HOST, got '{}'", text.substr(0, 200)));
  HubUrl url;
  if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7F; }) ||
      text.size() > 16384)
    return bad;
  if (text.starts_with("https://")) {
    url.tls = true;
    text.remove_prefix(8);
  } else if (text.starts_with("http://")) {
    text.remove_prefix(7);
  } else {
    return bad;
  }
  const size_t path = text.find_first_of("/?#");
  std::string_view host = text.substr(0, path);
  if (path != std::string_view::npos)
    url.target = (text[path] == '/' ? "" : "/") + std::string(text.substr(path, text.find('#') - path));
  if (host.find('@') != std::string_view::npos) return bad;  // a user name and password
  url.port = url.tls ? "443" : "80";
  const size_t colon = host.rfind(':'), bracket = host.rfind(']');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    url.port = host.substr(colon + 1);
    host = host.substr(0, colon);
    if (url.port.empty() || url.port.size() > 5 ||
        !std::ranges::all_of(url.port, [](char c) { return c >= '0' && c <= '9'; }))
      return bad;
  }
  constexpr std::string_view kAddress = "0123456789abcdefABCDEF:.";  // characters of an IPv6 address
  if (host.starts_with('[')) {
    host = host.ends_with(']') ? host.substr(1, host.size() - 2) : "";
    if (host.find(':') == std::string_view::npos || host.find_first_not_of(kAddress) != std::string_view::npos)
      return bad;
  } else if (host.empty() || host.find_first_of("[]:") != std::string_view::npos) {
    return bad;
  }
  url.host = host;
  return url;
}

Result<HubUrl> redirect_url(const HubUrl& base, std::string_view location) {
  if (location.starts_with("http://") || location.starts_with("https://")) {
    MILLRACE_TRY(HubUrl to, parse_hub_url(location));
    if (base.tls && !to.tls) return Error::user(fmt::format("{}: redirects from https to http", base.origin()));
    return to;
  }
  if (location.starts_with("//")) return parse_hub_url((base.tls ? "https:" : "http:") + std::string(location));
  if (location.starts_with('/')) return parse_hub_url(base.origin() + std::string(location));
  const std::string path = base.target.substr(0, base.target.find('?'));
  return parse_hub_url(base.origin() + path.substr(0, path.rfind('/') + 1) + std::string(location));
}

Result<HttpAnswer> http_get(const HubUrl& url, const HttpGet& get, HubUrl* last) {
  HubUrl at = url;
  for (int i = 0; i <= get.most_redirects; ++i) {
    MILLRACE_TRY(HttpAnswer answer, get_once(at, get, at.origin() == url.origin()));
    if (last) *last = at;
    const std::string location = answer.header("location");
    if (answer.status < 300 || answer.status >= 400 || location.empty()) return answer;
    MILLRACE_TRY(at, redirect_url(at, location));
  }
  return Error::user(fmt::format("{}: more than {} redirects", url.text(), get.most_redirects));
}

}  // namespace millrace
