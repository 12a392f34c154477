#include "server/http_post.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <charconv>

namespace millrace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Code = boost::system::error_code;

Result<PostTarget> PostTarget::parse(const std::string& what, const std::string& url, const std::string& default_path) {
  const Error bad = Error::user(fmt::format("{}: wants http://HOST[:PORT]/PATH, got '{}'", what, url.substr(0, 200)));
  if (url.starts_with("https://")) return Error::unsupported(fmt::format("{}: https is not spoken here; give the http address behind the TLS proxy", what));
  if (!url.starts_with("http://") || url.size() > 2000) return bad;
  for (const char c : url)
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f || c == '@' || c == '#' || c == '?') return bad;
  const std::string rest = url.substr(7);
  const size_t slash = std::min(rest.find('/'), rest.size());
  PostTarget target{rest.substr(0, slash), "80", slash + 1 < rest.size() ? rest.substr(slash) : default_path};
  const size_t colon = target.host.rfind(':');
  if (colon != std::string::npos && target.host.find(']', colon) == std::string::npos) {
    target.port = target.host.substr(colon + 1);
    target.host.resize(colon);
    int number = 0;
    const auto [end, status] = std::from_chars(target.port.data(), target.port.data() + target.port.size(), number);
    if (status != std::errc() || end != target.port.data() + target.port.size() || number < 1 || number > 65535) return bad;
  }
  if (target.host.starts_with('[') && target.host.ends_with(']')) target.host = target.host.substr(1, target.host.size() - 2);
  if (target.host.empty()) return bad;
  return target;
}

Result<PostReply> http_post(const PostTarget& target, const HttpHeaders& headers, const std::string& body, std::chrono::milliseconds limit, size_t most_reply_bytes) {
  asio::io_context io;
  beast::tcp_stream stream(io);
  beast::flat_buffer buffer(size_t{1} << 20);
  http::response_parser<http::string_body> parser;
  parser.body_limit(most_reply_bytes);
  http::request<http::string_body> request(http::verb::post, target.path, 11);
  request.set(http::field::host, (target.host.find(':') == std::string::npos ? target.host : "[" + target.host + "]") + ":" + target.port);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  for (const auto& [name, value] : headers) request.set(name, value);
  request.body() = body;
  request.prepare_payload();
  Code failed;
  const auto addresses = asio::ip::tcp::resolver(io).resolve(target.host, target.port, failed);
  if (failed) return Error::resource(fmt::format("{}: has no address: {}", target.host, failed.message()));
  stream.expires_after(limit);
  stream.async_connect(addresses, [&](Code code, const asio::ip::tcp::endpoint&) {
    if (failed = code; code) return;
    http::async_write(stream, request, [&](Code unwritten, size_t) {
      if (failed = unwritten; unwritten) return;
      http::async_read(stream, buffer, parser, [&](Code unread, size_t) { failed = unread; });
    });
  });
  io.run();
  if (failed) return Error::resource(fmt::format("{}:{}: {}", target.host, target.port, failed.message()));
  return PostReply{static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
}

}  // namespace millrace
