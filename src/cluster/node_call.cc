#include "cluster/node_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>

#include "base/network_error.h"

namespace millrace {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Code = boost::system::error_code;

constexpr uint32_t kMaxHeadBytes = 64 << 10;
constexpr size_t kPartBytes = 64 << 10;

class OpenCall final : public NodeCall, public std::enable_shared_from_this<OpenCall> {
 public:
  OpenCall(asio::io_context& io, NodeAddress node, NodeRequest request, double connect, double silent, Events events)
      : stream_(asio::make_strand(io)),
        resolver_(stream_.get_executor()),
        node_(std::move(node)),
        connect_seconds_(connect),
        silent_seconds_(silent),
        events_(std::move(events)) {
    request_.method_string(request.method);
    request_.target(request.target);
    request_.version(11);
    request_.set(http::field::host, node_.host_and_port());
    request_.set(http::field::connection, "close");
    for (const auto& [name, value] : request.headers) request_.set(name, value);
    request_.body() = std::move(request.body);
    request_.prepare_payload();
    parser_.header_limit(kMaxHeadBytes);
    parser_.body_limit(boost::none);
    parser_.eager(true);
  }

  void begin() {
    limit(connect_seconds_);
    resolver_.async_resolve(node_.host, node_.port,
                            [self = shared_from_this()](Code failed, asio::ip::tcp::resolver::results_type found) {
                              if (failed) return self->finish(failed);
                              self->connect(found);
                            });
  }

  void cancel() override {
    cancelled_ = true;
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      self->resolver_.cancel();
      self->stream_.close();
    });
  }

 private:
  void limit(double seconds) {
    if (seconds > 0)
      stream_.expires_after(
          std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds)));
    else
      stream_.expires_never();
  }

  void connect(const asio::ip::tcp::resolver::results_type& addresses) {
    stream_.async_connect(addresses, [self = shared_from_this()](Code failed, const asio::ip::tcp::endpoint&) {
      if (failed) return self->finish(failed);
      self->limit(self->silent_seconds_);
      http::async_write(self->stream_, self->request_, [self](Code unwritten, size_t) {
        self->request_.body() = {};
        // A node may answer, and close, before it has read a body that it refuses.
        if (unwritten && unwritten != asio::error::broken_pipe && unwritten != asio::error::connection_reset)
          return self->finish(unwritten);
        self->read();
      });
    });
  }

  void read() {
    parser_.get().body().data = part_.data();
    parser_.get().body().size = part_.size();
    http::async_read_some(stream_, buffer_, parser_,
                          [self = shared_from_this()](Code failed, size_t) { self->came(failed); });
  }

  void came(Code failed) {
    if (failed == http::error::need_buffer) failed = {};
    if (cancelled_) return;
    if (parser_.is_header_done() && !has_head_) pass_head();
    const size_t bytes = part_.size() - parser_.get().body().size;
    if (bytes > 0 && has_head_ && events_.body && !cancelled_) events_.body({part_.data(), bytes});
    if (cancelled_) return;
    if (failed) return finish(failed);
    if (parser_.is_done()) return finish({});
    limit(silent_seconds_);
    read();
  }

  void pass_head() {
    has_head_ = true;
    NodeHead head{static_cast<int>(parser_.get().result_int()), {}};
    for (const auto& field : parser_.get()) {
      std::string name(field.name_string());
      std::ranges::transform(name, name.begin(),
                             [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
      head.headers.emplace_back(std::move(name), std::string(field.value()));
    }
    if (events_.head) events_.head(std::move(head));
  }

  void finish(Code failed) {
    Code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.close();
    if (cancelled_.exchange(true)) return;
    const Events events = std::exchange(events_, {});
    if (!events.end) return;
    if (!failed) return events.end(std::nullopt);
    events.end(network_error(fmt::format("{}: {}", node_.host_and_port(),
                                         failed == beast::error::timeout ? "no answer in time" : failed.message())));
  }

  beast::tcp_stream stream_;
  asio::ip::tcp::resolver resolver_;
  const NodeAddress node_;
  const double connect_seconds_, silent_seconds_;
  Events events_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_{kMaxHeadBytes + kPartBytes};
  std::array<char, kPartBytes> part_;
  http::response_parser<http::buffer_body> parser_;
  bool has_head_ = false;
  std::atomic<bool> cancelled_{false};  // or finished
};

}  // namespace

Result<NodeAddress> NodeAddress::parse(const std::string& text) {
  if (text.starts_with("https://"))
    return Error::unsupported(
        fmt::format("node {}: https; nodes are reached over http, in a network that is trusted", text.substr(0, 200)));
  const Error bad = Error::user(fmt::format("node '{}': expected HOST:PORT or http://HOST:PORT", text.substr(0, 200)));
  std::string rest = text.starts_with("http://") ? text.substr(7) : text;
  if (rest.ends_with('/')) rest.pop_back();
  const size_t colon = rest.rfind(':');
  if (colon == std::string::npos || rest.size() > 300) return bad;
  NodeAddress node{rest.substr(0, colon), rest.substr(colon + 1)};
  if (node.host.starts_with('[') && node.host.ends_with(']')) node.host = node.host.substr(1, node.host.size() - 2);
  int port = 0;
  const auto [end, status] = std::from_chars(node.port.data(), node.port.data() + node.port.size(), port);
  if (status != std::errc() || end != node.port.data() + node.port.size() || port < 1 || port > 65535) return bad;
  const auto plain = [](char c) { return c > ' ' && c < 0x7f && c != '/' && c != '@' && c != '#' && c != '?'; };
  if (node.host.empty() || !std::ranges::all_of(node.host, plain)) return bad;
  return node;
}

std::string NodeAddress::host_and_port() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

std::string_view NodeHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

std::shared_ptr<NodeCall> NodeCall::start(asio::io_context& io, const NodeAddress& node, NodeRequest request,
                                          double connect_seconds, double silent_seconds, Events events) {
  auto call =
      std::make_shared<OpenCall>(io, node, std::move(request), connect_seconds, silent_seconds, std::move(events));
  asio::post(io, [call] { call->begin(); });
  return call;
}

}  // namespace millrace
