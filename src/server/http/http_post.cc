#include "server/http/http_post.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <optional>

#include "base/network_error.h"

namespace millrace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Code = boost::system::error_code;

namespace {

Result<std::shared_ptr<SSL_CTX>> client_tls(const std::string& what, const std::string& ca_file) {
  std::shared_ptr<SSL_CTX> out(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (!out) return Error::resource(what + ": TLS: out of memory");
  SSL_CTX_set_min_proto_version(out.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(out.get(), SSL_VERIFY_PEER, nullptr);
  if (ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(out.get());
  } else if (SSL_CTX_load_verify_locations(out.get(), ca_file.c_str(), nullptr) != 1) {
    return Error::corrupt(fmt::format("{}: {}: contains no PEM certificates", what, ca_file));
  }
  return out;
}

}  // namespace

Result<PostTarget> PostTarget::parse(const std::string& what, const std::string& url, const std::string& default_path,
                                     const std::string& ca_file) {
  const Error bad = Error::user(
      fmt::format("{}: expected http://HOST[:PORT]/PATH or https://..., got '{}'", what, url.substr(0, 200)));
  const bool encrypted = url.starts_with("https://");
  if ((!encrypted && !url.starts_with("http://")) || url.size() > 2000) return bad;
  for (const char c : url)
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f || c == '@' || c == '#' || c == '?') return bad;
  const std::string rest = url.substr(encrypted ? 8 : 7);
  const size_t slash = std::min(rest.find('/'), rest.size());
  PostTarget target{rest.substr(0, slash), encrypted ? "443" : "80",
                    slash + 1 < rest.size() ? rest.substr(slash) : default_path, nullptr};
  const size_t colon = target.host.rfind(':');
  if (colon != std::string::npos && target.host.find(']', colon) == std::string::npos) {
    target.port = target.host.substr(colon + 1);
    target.host.resize(colon);
    int number = 0;
    const auto [end, status] = std::from_chars(target.port.data(), target.port.data() + target.port.size(), number);
    if (status != std::errc() || end != target.port.data() + target.port.size() || number < 1 || number > 65535)
      return bad;
  }
  if (target.host.starts_with('[') && target.host.ends_with(']'))
    target.host = target.host.substr(1, target.host.size() - 2);
  if (target.host.empty()) return bad;
  if (encrypted) {
    MILLRACE_TRY(target.tls, client_tls(what, ca_file));
  }
  return target;
}

Result<PostReply> http_post(const PostTarget& target, const HttpHeaders& headers, const std::string& body,
                            std::chrono::milliseconds limit, size_t most_reply_bytes) {
  asio::io_context io;
  beast::tcp_stream plain(io);
  std::optional<asio::ssl::context> trust;
  std::optional<asio::ssl::stream<beast::tcp_stream>> secure;
  if (target.tls) {
    SSL_CTX_up_ref(target.tls.get());  // Asio's context releases one reference
    secure.emplace(io, trust.emplace(target.tls.get()));
    secure->set_verify_callback(asio::ssl::host_name_verification(target.host));
    SSL_set_tlsext_host_name(secure->native_handle(), target.host.c_str());
  }
  beast::tcp_stream& stream = secure ? secure->next_layer() : plain;
  beast::flat_buffer buffer(size_t{1} << 20);
  http::response_parser<http::string_body> parser;
  parser.body_limit(most_reply_bytes);
  http::request<http::string_body> request(http::verb::post, target.path, 11);
  request.set(http::field::host,
              (target.host.find(':') == std::string::npos ? target.host : "[" + target.host + "]") + ":" + target.port);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  for (const auto& [name, value] : headers) request.set(name, value);
  request.body() = body;
  request.prepare_payload();
  Code failed;
  const auto addresses = asio::ip::tcp::resolver(io).resolve(target.host, target.port, failed);
  if (failed) return network_error(fmt::format("{}: cannot be resolved: {}", target.host, failed.message()));
  const auto exchange = [&](auto& over) {
    http::async_write(over, request, [&](Code unwritten, size_t) {
      if (failed = unwritten; unwritten) return;
      http::async_read(over, buffer, parser, [&](Code unread, size_t) { failed = unread; });
    });
  };
  stream.expires_after(limit);
  stream.async_connect(addresses, [&](Code code, const asio::ip::tcp::endpoint&) {
    if (failed = code; code) return;
    if (!secure) return exchange(plain);
    secure->async_handshake(asio::ssl::stream_base::client, [&](Code refused) {
      if (failed = refused; !refused) exchange(*secure);
    });
  });
  io.run();
  if (failed) return network_error(fmt::format("{}:{}: {}", target.host, target.port, failed.message()));
  return PostReply{static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
}

}  // namespace millrace
