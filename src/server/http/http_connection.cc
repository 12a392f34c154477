#include "server/http/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/read.hpp>

#include "server/http/http_head.h"

namespace millrace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr size_t kHeadPiece = 4096;     // bytes per read
constexpr double kLateSeconds = 2;      // for the request of a connection accepted while the server drains
constexpr double kTurnAwaySeconds = 2;  // time to read the request head on a connection beyond the limit

// The text between the first two spaces; `head` need not be a valid request.
std::string_view target_of(std::string_view head) {
  head = head.substr(0, head.find("\r\n"));
  const size_t begin = head.find(' ');
  return begin == std::string_view::npos ? std::string_view()
                                         : head.substr(begin + 1, head.find(' ', begin + 1) - begin - 1);
}

// The peer closed the connection, possibly in the middle of a request.
bool is_gone(const boost::system::error_code& failed) {
  return failed == http::error::end_of_stream || failed == http::error::partial_message ||
         failed == asio::error::connection_reset || failed == asio::error::operation_aborted;
}

}  // namespace

HttpConnection::HttpConnection(HttpServer::State& server, HttpSocket socket, PeerAddress peer, bool rejected)
    : server_(server),
      stream_(std::move(socket), server.current_tls()),
      timer_(stream_.get_executor()),
      ping_timer_(stream_.get_executor()),
      limits_(server.current_limits()),
      peer_(peer),
      turned_away_(rejected),
      late_(server.draining) {
  ErrorCode ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  ++(turned_away_ ? server_.turning_away : server_.open);
  if (late_ && !turned_away_) ++server_.late;
  std::lock_guard lock(server_.mutex);
  if (!turned_away_) ++server_.peers[peer_];
}

// Not in the constructor: code that finds the connection in the set takes a shared_ptr, which is impossible before
// make_shared returns.
void HttpConnection::enroll() {
  std::lock_guard lock(server_.mutex);
  server_.connections.insert(this);
}

HttpConnection::~HttpConnection() {
  release_body();
  --(turned_away_ ? server_.turning_away : server_.open);
  if (late_ && !turned_away_) --server_.late;
  std::lock_guard lock(server_.mutex);
  server_.connections.erase(this);
  if (turned_away_) return;
  if (auto found = server_.peers.find(peer_); --found->second == 0) server_.peers.erase(found);
}

void HttpConnection::start() {
  if (!stream_.encrypted()) return turned_away_ ? read_head() : wait_for_request();
  limit(turned_away_ ? std::min(kTurnAwaySeconds, limits_->handshake_seconds) : limits_->handshake_seconds,
        [this] { close(); });
  stream_.async_handshake([self = shared_from_this()](ErrorCode failed, size_t) {
    if (failed || self->closed_) return self->close();
    self->turned_away_ ? self->read_head() : self->wait_for_request();
  });
}

// There is one timeout at a time; a new one replaces it.
void HttpConnection::limit(double seconds, std::function<void()> late) {
  timer_.expires_after(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  timer_.async_wait([self = shared_from_this(), late = std::move(late)](ErrorCode failed) {
    if (!failed && !self->closed_ && Clock::now() >= self->timer_.expiry()) late();
  });
}

// The new expiry makes any late() that is already queued do nothing.
void HttpConnection::no_limit() { timer_.expires_at(Clock::time_point::max()); }

void HttpConnection::leave_if_idle() {
  if (!answering_ && !parser_) close();
}

void HttpConnection::cut() { close(); }

void HttpConnection::give_up() {
  if (closed_ || complete_) return;
  if (!answering_ && !parser_) return close();
  keep_alive_ = false;
  ping_.clear();
  FinalReply last;
  if (server_.handler.give_up) last = server_.handler.give_up(answering_ ? answered_request_ : request_);
  last.whole.close = true;
  if (!answering_) {  // only part of a request was received
    ++number_;
    answering_ = true;
    ++server_.answering;
    return reply(std::move(last.whole));
  }
  const auto gone = std::exchange(gone_, nullptr);
  end(std::move(last.whole), std::move(last.event));
  if (gone) gone(true);
}

void HttpConnection::close() {
  if (closed_) return;
  closed_ = true;
  no_limit();
  ping_timer_.cancel();
  stream_.close();
  more_ = nullptr;
  if (!answering_) return;
  answering_ = false;
  --server_.answering;
  if (auto gone = std::move(gone_)) gone(false);
}

void HttpConnection::wait_for_request() {
  const bool first = late_ && number_ == 0;
  if (server_.draining && buffer_.size() == 0 && !first) return close();
  limits_ = server_.current_limits();
  if (buffer_.size() > 0 || stream_.has_pending()) return read_head();
  limit(first ? std::min(kLateSeconds, limits_->idle_seconds) : limits_->idle_seconds, [this] { close(); });
  stream_.socket().async_wait(HttpSocket::wait_read, [self = shared_from_this()](ErrorCode failed) {
    if (failed || self->closed_) return self->close();
    self->read_head();
  });
}

void HttpConnection::read_head() {
  const HttpLimits& limits = *limits_;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits.header_bytes));
  parser_->body_limit(boost::none);  // set when the head is known, so that an error can use its path and id
  request_ = {};
  keep_alive_ = head_only_ = false;  // until the head is parsed
  if (turned_away_) {
    limit(std::min(kTurnAwaySeconds, limits.read_seconds), [this] { refuse_for_room(); });
  } else {
    limit(limits.read_seconds,
          [this] { refuse(408, fmt::format("the request did not arrive within {} seconds", limits_->read_seconds)); });
  }
  if (buffer_.size() == 0) return read_more_of_head();
  asio::post(executor(), [self = shared_from_this()] {  // pipelined short requests must not recurse
    if (!self->closed_ && !self->answering_) self->read_more_of_head();
  });
}

// Checks the raw head before Beast parses it: heads that Beast accepts but other parsers read differently can only be
// recognized in the bytes.
void HttpConnection::read_more_of_head() {
  const auto held = [&] { return std::string_view(static_cast<const char*>(buffer_.data().data()), buffer_.size()); };
  buffer_.consume(skipped_line_ends(held()));
  const std::string_view bytes = held();
  const size_t size = head_bytes(bytes);
  const auto most = static_cast<size_t>(limits_->header_bytes);
  if (size == std::string_view::npos ? bytes.size() >= most : size > most) {
    take_target(target_of(bytes));
    return refuse(431, fmt::format("the request head is longer than {} bytes", limits_->header_bytes));
  }
  if (size == std::string_view::npos) {
    reading_ = true;
    return stream_.async_read_some(buffer_.prepare(kHeadPiece),
                                   [self = shared_from_this()](ErrorCode failed, size_t count) {
                                     self->reading_ = false;
                                     if (self->closed_ || self->answering_) return;
                                     if (failed) return self->close();
                                     self->buffer_.commit(count);
                                     self->read_more_of_head();
                                   });
  }
  if (const auto fault = head_fault(bytes.substr(0, size))) {
    take_target(target_of(bytes));
    return refuse(fault->status, fault->message);
  }
  ErrorCode failed;
  forget_parsed(parser_->put(buffer_.data(), failed));
  head_came(failed);
}

// The buffer is used for the next request, which may be of another client.
void HttpConnection::forget_parsed(size_t bytes) {
  wipe(buffer_.data().data(), bytes);
  buffer_.consume(bytes);
  if (buffer_.size() > 0) return;
  const auto unused = buffer_.prepare(buffer_.capacity());  // it may hold a copy from before its bytes were moved
  wipe(unused.data(), unused.size());
}

// The connection closes after the answer, but only once the client has: its key must not wait in memory for that.
void HttpConnection::forget_request() {
  if (reading_) return;  // a read still uses both
  parser_.reset();
  forget_parsed(buffer_.size());
}

// Converts Beast's parsed head to ours.
void HttpConnection::take_head() {
  const auto& head = parser_->get();
  request_.method = std::string(head.method_string());
  request_.client.assign(peer_.begin(), peer_.end());
  const auto value = [](const auto& text) { return std::string_view(text.data(), text.size()); };
  request_.given = read_given_key(value(head[http::field::authorization]), value(head["x-api-key"]));
  for (const auto& field : head) {
    std::string name(field.name_string());
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (name == "authorization" || name == "x-api-key") continue;
    request_.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  take_proxy();
  keep_alive_ = head.keep_alive();
  chunks_ = head.version() >= 11;
  head_only_ = head.method() == http::verb::head;
}

// Behind a trusted proxy the client is the last address that the proxy names.
void HttpConnection::take_proxy() {
  if (limits_->trusted_proxies.empty()) return;
  ErrorCode failed;
  auto peer = stream_.socket().remote_endpoint(failed).address();
  if (failed) return;
  if (peer.is_v6() && peer.to_v6().is_v4_mapped()) peer = asio::ip::make_address_v4(asio::ip::v4_mapped, peer.to_v6());
  request_.by_trusted_proxy =
      std::ranges::find(limits_->trusted_proxies, peer.to_string()) != limits_->trusted_proxies.end();
  std::string_view clients = request_.header("x-forwarded-for");
  if (!request_.by_trusted_proxy || clients.empty()) return;
  if (const size_t comma = clients.rfind(','); comma != std::string_view::npos) clients.remove_prefix(comma + 1);
  while (clients.starts_with(' ')) clients.remove_prefix(1);
  request_.client = std::string(clients.substr(0, 64));
}

bool HttpConnection::take_target(std::string_view target) {
  const size_t mark = target.find('?');
  auto path = percent_decoded(target.substr(0, mark));
  if (!path || path->empty() || path->front() != '/') return false;
  const std::string& prefix = limits_->path_prefix;
  if (!prefix.empty() && path->starts_with(prefix) && path->size() > prefix.size() && (*path)[prefix.size()] == '/')
    path->erase(0, prefix.size());
  request_.path = std::move(*path);
  if (mark != std::string_view::npos) request_.query = std::string(target.substr(mark + 1));
  return true;
}

// The page's addresses are relative to its own, which must therefore end in '/'. Location is relative too: proxies
// publish the prefix under names that this server does not know.
std::optional<HttpReply> HttpConnection::slash_redirect(std::string_view target) const {
  if (limits_->path_prefix.empty() || request_.path != limits_->path_prefix) return std::nullopt;
  if (request_.method != "GET" && request_.method != "HEAD") return std::nullopt;
  const std::string_view path = target.substr(0, target.find('?'));
  std::string location = "./" + std::string(path.substr(path.rfind('/') + 1)) + "/";
  if (!request_.query.empty()) location += "?" + request_.query;
  return HttpReply{.status = 308, .headers = {{"Location", location}}};
}

void HttpConnection::refuse_for_room() {
  refuse(503, "connections: the limit of this server or for this address is reached; try again later");
}

void HttpConnection::head_came(ErrorCode failed) {
  if (failed) return refuse(400, "not an HTTP request: " + failed.message());
  take_head();
  const std::string_view target(parser_->get().target().data(), parser_->get().target().size());
  if (!take_target(target)) return refuse(400, "the request target is not a path");
  if (turned_away_) return refuse_for_room();
  const auto body_limit = static_cast<uint64_t>(limits_->body_bytes);
  if (parser_->content_length().value_or(0) > body_limit) return refuse(413, too_large());
  parser_->body_limit(body_limit);
  std::optional<HttpReply> refused = slash_redirect(target);
  if (!refused) refused = server_.handler.admit(request_);
  if (refused) {
    if (parser_->is_done()) {
      parser_.reset();  // received completely: the connection can be reused
    } else {
      refused->close = true;
      forget_request();
    }
    ++number_;
    answering_ = true;
    ++server_.answering;
    return reply(std::move(*refused));
  }
  if (!reserve_body()) return refuse(429, "the memory for request bodies is in use by other requests; try again later");
  if (request_.header("expect") != "100-continue" || parser_->is_done()) return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  stream_.async_write_some(asio::buffer(kContinue), [self = shared_from_this()](ErrorCode lost, size_t bytes) {
    if (self->closed_ || self->answering_) return;
    if (lost || bytes < kContinue.size()) return self->close();  // an idle socket has room for 25 bytes
    self->read_body();
  });
}

std::string HttpConnection::too_large() const {
  return fmt::format("the request body is larger than {} bytes", limits_->body_bytes);
}

void HttpConnection::read_body() {
  reading_ = true;
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](ErrorCode failed, size_t) { self->body_came(failed); });
}

void HttpConnection::body_came(ErrorCode failed) {
  reading_ = false;
  if (closed_ || answering_) return;
  if (failed == http::error::body_limit) return refuse(413, too_large());
  if (is_gone(failed)) return close();
  if (failed) return refuse(400, "not an HTTP request: " + failed.message());
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  release_body();
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
  no_limit();
  ++number_;
  answering_ = true;
  ++server_.answering;
  last_write_ = Clock::now();
  answered_request_ = {.method = request_.method, .path = request_.path};
  for (const auto& header : request_.headers)
    if (header.first == "x-request-id" || header.first == "origin") answered_request_.headers.push_back(header);
  watch_reader();
  asio::post(server_.handling, [&server = server_, request = std::move(request_),
                                exchange = Exchange(shared_from_this(), number_)]() mutable {
    server.handler.handle(std::move(request), std::move(exchange));
  });
  request_ = {};
}

void HttpConnection::refuse(int status, const std::string& message) {
  if (closed_ || answering_) return;
  forget_request();
  ++number_;
  answering_ = true;
  ++server_.answering;
  HttpReply answer = server_.handler.refuse(request_, status, message);
  answer.close = true;
  reply(std::move(answer));
}

// A socket that is readable during an answer means that the client disconnected or sent its next request.
void HttpConnection::watch_reader() {
  if (stream_.has_pending()) return;
  stream_.socket().async_wait(HttpSocket::wait_read, [self = shared_from_this(), number = number_](ErrorCode failed) {
    if (self->closed_ || !self->current(number)) return;
    if (failed) return self->close();
    switch (self->stream_.look()) {
      case HttpStream::Reader::left: return self->close();
      case HttpStream::Reader::silent: return self->watch_reader();
      case HttpStream::Reader::speaks: return;
    }
  });
}

// Bounds the total size of all bodies being received; each one alone may be large.
bool HttpConnection::reserve_body() {
  if (parser_->is_done()) return true;
  const auto most = static_cast<uint64_t>(limits_->body_bytes);
  reserved_body_ = static_cast<int64_t>(std::min<uint64_t>(most, parser_->content_length().value_or(most)));
  if (server_.body_bytes.fetch_add(reserved_body_) + reserved_body_ <=
      std::max(limits_->bodies_bytes, limits_->body_bytes))
    return true;
  release_body();
  return false;
}

void HttpConnection::release_body() {
  server_.body_bytes -= reserved_body_;
  reserved_body_ = 0;
}

}  // namespace millrace
