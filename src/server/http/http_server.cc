#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <future>

#include "base/network_error.h"
#include "base/start_thread.h"
#include "server/http/http.h"
#include "server/http/http_connection.h"

namespace millrace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

std::optional<std::string> percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = digit(text[i + 1]), low = digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

const char* http_reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 410: return "Gone";
    case 413: return "Content Too Large";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 507: return "Insufficient Storage";
    case 529: return "Overloaded";
    default: return "Status";
  }
}

namespace {

constexpr int64_t kMaxTurnedAway = 64;  // connections over the limit that are read to answer in their API's format
constexpr size_t kLookedAtBytes = 4096;
constexpr auto kGiveUpTime = std::chrono::seconds(1);

PeerAddress peer_of(const HttpSocket& socket) {
  ErrorCode failed;
  const auto address = socket.remote_endpoint(failed).address();
  PeerAddress out{};
  if (failed) return out;
  if (address.is_v4()) {
    const auto bytes = asio::ip::make_address_v6(asio::ip::v4_mapped, address.to_v4()).to_bytes();
    std::copy(bytes.begin(), bytes.end(), out.begin());
  } else {
    const auto bytes = address.to_v6().to_bytes();
    const bool mapped = address.to_v6().is_v4_mapped() || address.to_v6().is_loopback();
    std::copy(bytes.begin(), bytes.begin() + (mapped ? 16 : 8), out.begin());
  }
  return out;
}

}  // namespace

bool HttpServer::State::has_room(const PeerAddress& peer) {
  std::lock_guard lock(mutex);
  if (open >= limits->connections) return false;
  const auto found = peers.find(peer);
  return limits->peer_connections == 0 || found == peers.end() || found->second < limits->peer_connections;
}

void HttpServer::State::take(HttpSocket socket) {
  const PeerAddress peer = peer_of(socket);
  if (!has_room(peer)) return turn_away(std::move(socket), peer);
  auto connection = std::make_shared<HttpConnection>(*this, std::move(socket), peer, false);
  connection->enroll();
  asio::post(connection->executor(), [connection] { connection->start(); });
}

// The first kMaxTurnedAway are read far enough to answer in the format of the API they use; the others get a generic
// answer immediately.
void HttpServer::State::turn_away(HttpSocket socket, const PeerAddress& peer) {
  ++rejected;
  if (turning_away < kMaxTurnedAway) {
    auto connection = std::make_shared<HttpConnection>(*this, std::move(socket), peer, true);
    connection->enroll();
    asio::post(connection->executor(), [connection] { connection->start(); });
    return;
  }
  if (current_tls()) return;
  static constexpr std::string_view kBody =
      R"({"type": "error", "error": {"type": "overloaded_error", "code": 503, "message": "connections: this server's limit is reached; try again later"}})";
  static const std::string full = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nContent-Length: "
      "{}\r\nConnection: close\r\n\r\n{}",
      kBody.size(), kBody);
  ErrorCode ignored;
  socket.non_blocking(true, ignored);
  char request[kLookedAtBytes];
  socket.read_some(asio::buffer(request), ignored);  // closing with unread bytes would discard the answer
  socket.write_some(asio::buffer(full), ignored);
  socket.shutdown(HttpSocket::shutdown_send, ignored);
}

void HttpServer::State::accept() {
  acceptor.async_accept(asio::make_strand(io), [this](ErrorCode failed, HttpSocket socket) {
    if (failed == asio::error::operation_aborted || stopping) return;
    if (failed) {  // most likely out of file descriptors: retry once connections have closed
      accept_again.expires_after(std::chrono::milliseconds(100));
      accept_again.async_wait([this](ErrorCode cancelled) {
        if (!cancelled) accept();
      });
      return;
    }
    try {
      take(std::move(socket));
    } catch (const std::bad_alloc&) {  // this connection is closed; there may be memory for the next one
    }
    accept();
  });
}

// Runs `work` on each connection's strand. The last reference to a connection must not be dropped under the mutex.
template <typename Work>
std::shared_ptr<std::atomic<int64_t>> HttpServer::State::for_each_connection(Work work) {
  std::vector<std::shared_ptr<HttpConnection>> alive;
  {
    std::lock_guard lock(mutex);
    for (HttpConnection* connection : connections)
      if (auto one = connection->weak_from_this().lock()) alive.push_back(std::move(one));
  }
  auto left = std::make_shared<std::atomic<int64_t>>(static_cast<int64_t>(alive.size()));
  for (auto& one : alive)
    asio::post(one->executor(), [one, work, left] {
      work(*one);
      --*left;
    });
  return left;
}

// Returns once no further connection can be accepted: accepting runs on one strand.
void HttpServer::State::stop_accepting() {
  stopping = true;
  std::promise<void> closed;
  asio::post(accepting, [this, &closed] {
    ErrorCode ignored;
    acceptor.close(ignored);
    accept_again.cancel();
    closed.set_value();
  });
  closed.get_future().wait();
}

// Waits until all clients have received their last words, or the time limit is over.
void HttpServer::State::give_up() {
  const auto left = for_each_connection([](HttpConnection& connection) { connection.give_up(); });
  const auto until = std::chrono::steady_clock::now() + kGiveUpTime;
  while ((*left > 0 || answering > 0) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// A handler that throws, as without memory, loses at most its own connection.
void HttpServer::State::run(asio::io_context& context) {
  for (;;) {
    try {
      context.run();
      return;
    } catch (const std::exception&) {
    }
  }
}

Result<void> HttpServer::State::start_threads() {
  for (int i = 0; i < limits->io_threads; ++i) {
    MILLRACE_TRY(std::thread started, start_thread("connections", [this] { run(io); }));
    threads.push_back(std::move(started));
  }
  for (int i = 0; i < limits->workers; ++i) {
    MILLRACE_TRY(std::thread started, start_thread("requests", [this] { run(handling); }));
    workers.push_back(std::move(started));
  }
  return {};
}

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() { stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpLimits& limits, HttpHandler handler,
                                                      std::shared_ptr<const TlsContext> tls) {
  ErrorCode failed;
  const auto address = asio::ip::make_address(limits.host == "localhost" ? "127.0.0.1" : limits.host, failed);
  if (failed) return Error::user(fmt::format("host: must be an IP address or localhost, got '{}'", limits.host));
  if (limits.port < 0 || limits.port > 65535)
    return Error::user(fmt::format("port: must be 0 to 65535, got {}", limits.port));
  auto server = std::unique_ptr<HttpServer>(new HttpServer());
  server->state_ = std::make_shared<State>(limits, std::move(handler), std::move(tls));
  State& state = *server->state_;
  const asio::ip::tcp::endpoint endpoint(address, static_cast<uint16_t>(limits.port));
  state.acceptor.open(endpoint.protocol(), failed);
  if (!failed) state.acceptor.set_option(asio::socket_base::reuse_address(true), failed);
  if (!failed) state.acceptor.bind(endpoint, failed);
  if (!failed) state.acceptor.listen(asio::socket_base::max_listen_connections, failed);
  if (failed)
    return network_error(fmt::format("{} port {}: cannot listen: {}", limits.host, limits.port, failed.message()));
  state.bound_port = state.acceptor.local_endpoint(failed).port();
  if (auto started = state.start_threads(); !started.ok()) return started.error();  // the destructor joins the others
  asio::post(state.accepting, [&state] { state.accept(); });
  return server;
}

int HttpServer::port() const { return state_->bound_port; }

bool HttpServer::drained() const { return state_->open <= state_->late; }

HttpCounts HttpServer::counts() const { return {state_->open, state_->answering, state_->cut, state_->rejected}; }

void HttpServer::change(const HttpLimits& limits, std::shared_ptr<const TlsContext> tls) {
  std::lock_guard lock(state_->mutex);
  state_->limits = std::make_shared<HttpLimits>(limits);
  if (state_->tls && tls) state_->tls = std::move(tls);
}

void HttpServer::drain() {
  state_->draining = true;
  asio::post(state_->accepting, [state = state_.get()] {
    state->for_each_connection([](HttpConnection& connection) { connection.leave_if_idle(); });
  });
}

void HttpServer::stop() {
  if (!state_ || state_->threads.empty()) return;
  drain();
  state_->stop_accepting();
  state_->give_up();
  state_->for_each_connection([](HttpConnection& connection) { connection.cut(); });
  state_->stay.reset();
  state_->stay_handling.reset();
  for (auto& thread : state_->workers) thread.join();  // running handlers, which never block
  for (auto& thread : state_->threads) thread.join();  // run() returns once all connections are gone
  state_->threads.clear();
}

}  // namespace millrace
