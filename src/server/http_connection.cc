#include "server/http_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/read.hpp>
#include <charconv>
#include <ctime>

#include "server/answer_taker.h"

namespace millrace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr int64_t kMostDiscarded = int64_t{4} << 20;  // of a body that was refused, so that its sender sees the answer
constexpr double kLingerSeconds = 2;
constexpr size_t kKeptBytes = 4096;  // of the buffers of a connection between two requests

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  const size_t length = std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return std::string(text, length);
}

void append_chunk(std::string& out, std::string_view bytes) {
  char size[20];
  auto end = std::to_chars(size, size + sizeof(size), bytes.size(), 16).ptr;
  out.append(size, end).append("\r\n").append(bytes).append("\r\n");
}

// The other side left, with or without a part of a request.
bool is_gone(const boost::system::error_code& failed) {
  return failed == http::error::end_of_stream || failed == http::error::partial_message || failed == asio::error::connection_reset ||
         failed == asio::error::operation_aborted;
}

void shrink(std::string& text) {
  if (text.capacity() > kKeptBytes) std::string().swap(text);
}

}  // namespace

HttpConnection::HttpConnection(HttpServer::State& server, Socket socket)
    : server_(server), socket_(std::move(socket)), timer_(socket_.get_executor()), ping_timer_(socket_.get_executor()) {
  ErrorCode ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  ++server_.open;
  std::lock_guard lock(server_.mutex);
  server_.connections.insert(this);
}

HttpConnection::~HttpConnection() {
  --server_.open;
  std::lock_guard lock(server_.mutex);
  server_.connections.erase(this);
}

// One limit holds at a time; a new one replaces it.
void HttpConnection::limit(double seconds, std::function<void()> late) {
  timer_.expires_after(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  timer_.async_wait([self = shared_from_this(), late = std::move(late)](ErrorCode failed) {
    if (!failed && !self->closed_ && Clock::now() >= self->timer_.expiry()) late();
  });
}

// Later than any late() that is queued already, which then does nothing.
void HttpConnection::no_limit() { timer_.expires_at(Clock::time_point::max()); }

void HttpConnection::leave_if_idle() {
  if (!answering_ && !parser_) close();
}

void HttpConnection::cut() { close(); }

void HttpConnection::close() {
  if (closed_) return;
  closed_ = true;
  ErrorCode ignored;
  no_limit();
  ping_timer_.cancel();
  socket_.close(ignored);
  if (!answering_) return;
  answering_ = false;
  --server_.answering;
  if (auto gone = std::move(gone_)) gone();
}

void HttpConnection::wait_for_request() {
  if (server_.draining && buffer_.size() == 0) return close();
  if (buffer_.size() > 0) return read_head();
  limit(server_.limits.idle_seconds, [this] { close(); });
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](ErrorCode failed) {
    if (failed || self->closed_) return self->close();
    self->read_head();
  });
}

void HttpConnection::read_head() {
  const HttpLimits& limits = server_.limits;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits.header_bytes));
  parser_->body_limit(boost::none);  // once the head is here, so that a refusal can tell whose it is
  request_ = {};
  keep_alive_ = false;  // until a head says otherwise
  limit(limits.read_seconds, [this] { refuse(408, fmt::format("the request did not arrive within {} seconds", server_.limits.read_seconds)); });
  reading_ = true;
  http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](ErrorCode failed, size_t) { self->head_came(failed); });
}

// From Beast's head to ours.
void HttpConnection::take_head() {
  const auto& head = parser_->get();
  request_.method = std::string(head.method_string());
  for (const auto& field : head) {
    std::string name(field.name_string());
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    request_.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  keep_alive_ = head.keep_alive();
  chunks_ = head.version() >= 11;
  head_only_ = head.method() == http::verb::head;
}

void HttpConnection::head_came(ErrorCode failed) {
  reading_ = false;
  if (closed_ || answering_) return;
  if (is_gone(failed)) return close();
  if (failed == http::error::header_limit) return refuse(431, fmt::format("the request's head is longer than {} bytes", server_.limits.header_bytes));
  if (failed) return refuse(400, "not an HTTP request: " + failed.message());
  take_head();
  const std::string_view target(parser_->get().target().data(), parser_->get().target().size());
  const size_t mark = target.find('?');
  auto path = percent_decoded(target.substr(0, mark));
  if (!path || path->empty() || path->front() != '/') return refuse(400, "the request's target is not a path");
  request_.path = std::move(*path);
  if (mark != std::string_view::npos) request_.query = std::string(target.substr(mark + 1));
  const auto body_limit = static_cast<uint64_t>(server_.limits.body_bytes);
  if (parser_->content_length().value_or(0) > body_limit) return refuse(413, too_large());
  parser_->body_limit(body_limit);
  if (auto refused = server_.handler.admit(request_)) {
    refused->close = refused->close || !parser_->is_done();
    ++number_;
    answering_ = true;
    ++server_.answering;
    return reply(std::move(*refused));
  }
  if (request_.header("expect") == "100-continue" && !parser_->is_done()) {
    static const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    ErrorCode ignored;
    socket_.non_blocking(true, ignored);
    socket_.write_some(asio::buffer(go_on), ignored);  // a socket that was silent has room for 25 bytes
  }
  read_body();
}

std::string HttpConnection::too_large() const { return fmt::format("the request's body is larger than {} bytes", server_.limits.body_bytes); }

void HttpConnection::read_body() {
  reading_ = true;
  http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](ErrorCode failed, size_t) { self->body_came(failed); });
}

void HttpConnection::body_came(ErrorCode failed) {
  reading_ = false;
  if (closed_ || answering_) return;
  if (failed == http::error::body_limit) return refuse(413, too_large());
  if (is_gone(failed)) return close();
  if (failed) return refuse(400, "not an HTTP request: " + failed.message());
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
  no_limit();
  ++number_;
  answering_ = true;
  ++server_.answering;
  last_write_ = Clock::now();
  watch_reader();
  asio::post(server_.workers, [&server = server_, request = std::move(request_), exchange = Exchange(shared_from_this(), number_)]() mutable {
    server.handler.handle(std::move(request), std::move(exchange));
  });
  request_ = {};
}

void HttpConnection::refuse(int status, const std::string& message) {
  if (closed_ || answering_) return;
  ++number_;
  answering_ = true;
  ++server_.answering;
  HttpReply answer = server_.handler.refuse(request_, status, message);
  answer.close = true;
  reply(std::move(answer));
}

// Readable while an answer is under way means that the reader left, or that its next request is here already.
void HttpConnection::watch_reader() {
  socket_.async_wait(Socket::wait_read, [self = shared_from_this(), number = number_](ErrorCode failed) {
    if (self->closed_ || !self->current(number)) return;
    if (failed) return self->close();
    char byte;
    const auto came = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (came == 0 || (came < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return self->close();
    if (came < 0) self->watch_reader();
  });
}

std::string HttpConnection::head_text(const HttpReply& reply, bool streamed) const {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", reply.status, http_reason(reply.status), date_now());
  if (!reply.content_type.empty()) out += fmt::format("Content-Type: {}\r\n", reply.content_type);
  if (!streamed) {
    out += fmt::format("Content-Length: {}\r\n", reply.body.size());
  } else if (chunks_) {
    out += "Transfer-Encoding: chunked\r\n";
  }
  for (const auto& [name, value] : reply.headers) out += fmt::format("{}: {}\r\n", name, value);
  out += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

void HttpConnection::reply(HttpReply reply) {
  if (streaming_ || complete_) return;
  if (reply.close || server_.draining) keep_alive_ = false;
  complete_ = true;
  std::string bytes = head_text(reply, false);
  if (!head_only_) bytes += reply.body;
  queue(std::move(bytes));
}

void HttpConnection::begin_stream(HttpReply head) {
  if (complete_) return;
  if (streaming_) return write(std::move(head.body));  // a ping began it
  if (!chunks_ || server_.draining) keep_alive_ = false;
  streaming_ = true;
  std::string bytes = head_text(head, true);
  if (chunks_ && !head.body.empty()) {
    append_chunk(bytes, head.body);
  } else {
    bytes += head.body;
  }
  queue(std::move(bytes));
}

void HttpConnection::write(std::string bytes) {
  if (!streaming_ || complete_ || bytes.empty()) return;
  if (static_cast<int64_t>(queue_.size() + sending_.size() - sent_ + bytes.size()) > server_.limits.queued_bytes) {
    ++server_.cut;
    return close();
  }
  if (!chunks_) return queue(std::move(bytes));
  std::string chunk;
  append_chunk(chunk, bytes);
  queue(std::move(chunk));
}

void HttpConnection::finish(std::string bytes) {
  if (!streaming_ || complete_) return;
  write(std::move(bytes));
  if (closed_) return;
  complete_ = true;
  queue(chunks_ ? "0\r\n\r\n" : "");
}

void HttpConnection::end(HttpReply whole, std::string bytes) {
  if (streaming_) return finish(std::move(bytes));
  reply(std::move(whole));
}

void HttpConnection::ping_with(HttpReply head, std::string ping) {
  ping_head_ = std::move(head);
  ping_ = std::move(ping);
  arm_ping();
}

void HttpConnection::arm_ping() {
  const auto silence = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(server_.limits.ping_seconds));
  ping_timer_.expires_at(last_write_ + silence);
  ping_timer_.async_wait([self = shared_from_this(), number = number_, silence](ErrorCode failed) {
    if (failed || !self->current(number) || self->complete_ || self->ping_.empty()) return;
    if (Clock::now() >= self->last_write_ + silence) {
      if (!self->streaming_) self->begin_stream(self->ping_head_);
      self->write(self->ping_);
      self->last_write_ = Clock::now();
    }
    if (self->current(number)) self->arm_ping();
  });
}

void HttpConnection::on_gone(std::function<void()> gone) { gone_ = std::move(gone); }

void HttpConnection::queue(std::string bytes) {
  if (closed_) return;
  last_write_ = Clock::now();
  if (queue_.empty()) {
    queue_ = std::move(bytes);
  } else {
    queue_ += bytes;
  }
  if (sending_.empty()) send();
}

void HttpConnection::send() {
  if (sent_ == sending_.size()) {
    sending_.clear();
    sent_ = 0;
    if (queue_.empty()) {
      no_limit();
      if (complete_) answered();
      return;
    }
    sending_.swap(queue_);
    queue_.clear();
  }
  limit(server_.limits.stall_seconds, [this] {
    ++server_.cut;
    close();
  });
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](ErrorCode failed, size_t bytes) { self->sent(failed, bytes); });
}

void HttpConnection::sent(ErrorCode failed, size_t bytes) {
  if (closed_) return;
  if (failed) return close();
  sent_ += bytes;
  send();
}

void HttpConnection::answered() {
  no_limit();
  ping_timer_.cancel();
  answering_ = streaming_ = complete_ = false;
  --server_.answering;
  gone_ = nullptr;
  ping_.clear();
  shrink(sending_);
  shrink(queue_);
  ErrorCode ignored;
  if (reading_) {  // too slow to come in: the read is still under way
    socket_.shutdown(Socket::shutdown_send, ignored);
    return close();
  }
  const bool unread = parser_.has_value();  // the request was refused before it had come in
  parser_.reset();
  socket_.cancel(ignored);  // the watch over the reader
  if (keep_alive_ && !unread) return wait_for_request();
  socket_.shutdown(Socket::shutdown_send, ignored);
  linger();
}

// Closing with bytes unread resets the connection, and the reader may lose the answer: they are taken for a while.
void HttpConnection::linger() {
  limit(kLingerSeconds, [this] { close(); });
  discard();
}

void HttpConnection::discard() {
  socket_.async_read_some(asio::buffer(scrap_), [self = shared_from_this()](ErrorCode failed, size_t bytes) {
    self->discarded_ += static_cast<int64_t>(bytes);
    if (failed || self->closed_ || self->discarded_ > kMostDiscarded) return self->close();
    self->discard();
  });
}

namespace {

// Runs `work` on the connection's strand, at once where that is where we are, if the request is still being answered.
template <typename Work>
void on_strand(const std::shared_ptr<HttpConnection>& connection, uint64_t number, Work work) {
  if (!connection) return;
  asio::dispatch(connection->executor(), [connection, number, work = std::move(work)]() mutable {
    if (connection->current(number)) work(*connection);
  });
}

}  // namespace

void Exchange::reply(HttpReply reply) const {
  if (taker_) return taker_->reply(std::move(reply));
  on_strand(connection_, number_, [reply = std::move(reply)](HttpConnection& c) mutable { c.reply(std::move(reply)); });
}
void Exchange::begin_stream(HttpReply head) const {
  if (taker_) return taker_->begin_stream(std::move(head));
  on_strand(connection_, number_, [head = std::move(head)](HttpConnection& c) mutable { c.begin_stream(std::move(head)); });
}
void Exchange::write(std::string bytes) const {
  if (taker_) return taker_->write(std::move(bytes));
  on_strand(connection_, number_, [bytes = std::move(bytes)](HttpConnection& c) mutable { c.write(std::move(bytes)); });
}
void Exchange::finish(std::string bytes) const {
  if (taker_) return taker_->finish(std::move(bytes));
  on_strand(connection_, number_, [bytes = std::move(bytes)](HttpConnection& c) mutable { c.finish(std::move(bytes)); });
}
void Exchange::end(HttpReply reply, std::string bytes) const {
  if (taker_) return taker_->end(std::move(reply), std::move(bytes));
  on_strand(connection_, number_, [reply = std::move(reply), bytes = std::move(bytes)](HttpConnection& c) mutable { c.end(std::move(reply), std::move(bytes)); });
}
void Exchange::ping_with(HttpReply head, std::string ping) const {
  if (taker_) return taker_->ping_with(std::move(head), std::move(ping));
  on_strand(connection_, number_, [head = std::move(head), ping = std::move(ping)](HttpConnection& c) mutable { c.ping_with(std::move(head), std::move(ping)); });
}

// Work that comes too late still runs: it belongs to the request, not to the connection.
void Exchange::post(std::function<void()> work) const {
  if (taker_) return taker_->post(std::move(work));
  if (connection_) asio::post(connection_->executor(), [connection = connection_, work = std::move(work)] { work(); });
}

void Exchange::on_gone(std::function<void()> gone) const {
  if (taker_) return taker_->on_gone(std::move(gone));
  if (!connection_) return;
  asio::post(connection_->executor(), [connection = connection_, number = number_, gone = std::move(gone)]() mutable {
    if (connection->current(number)) return connection->on_gone(std::move(gone));
    gone();  // gone already
  });
}

}  // namespace millrace
