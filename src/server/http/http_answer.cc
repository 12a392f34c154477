// The writing half of HttpConnection: heads and chunks go to queue_, queue_ goes to the socket, and the connection is
// closed or reused after the last byte. http_connection.cc is the reading half.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <ctime>

#include "server/http/answer_taker.h"
#include "server/http/http_connection.h"
#include "server/telemetry/request_facts.h"

namespace millrace {

namespace asio = boost::asio;

namespace {

constexpr int64_t kMaxDiscarded = int64_t{4} << 20;  // of a rejected body, so that the client still reads the answer
constexpr double kLingerSeconds = 2;
constexpr size_t kKeptBytes = 4096;     // buffer capacity retained between two requests of a connection
constexpr int64_t kBytesPerUnsent = 4;  // memory for an unsent byte: two buffers, each up to twice its contents

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
  out.reserve(out.size() + bytes.size() + 16);
  out.append(size, end).append("\r\n").append(bytes).append("\r\n");
}

void shrink(std::string& text) {
  if (text.capacity() > kKeptBytes) std::string().swap(text);
}

}  // namespace

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
  if (complete_) return;
  if (streaming_) return finish({});  // the answer is over even if its reply comes too late to be sent
  if (reply.close || server_.draining) keep_alive_ = false;
  complete_ = true;
  if (reply.more && !reply.more(reply.body)) reply.more = nullptr;  // a short body has a Content-Length
  const bool in_parts = reply.more != nullptr;
  if (in_parts && !chunks_) keep_alive_ = false;
  std::string bytes = head_text(reply, in_parts);
  if (in_parts && chunks_ && !head_only_) {
    append_chunk(bytes, reply.body);
  } else if (!head_only_) {
    bytes += reply.body;
  }
  if (!head_only_) more_ = std::move(reply.more);
  queue(std::move(bytes));
}

void HttpConnection::queue_more() {
  std::string part;
  const bool more = more_(part);
  if (!chunks_) {
    queue_ += part;
  } else {
    if (!part.empty()) append_chunk(queue_, part);
    if (!more) queue_ += "0\r\n\r\n";
  }
  if (!more) more_ = nullptr;
}

void HttpConnection::begin_stream(HttpReply head) {
  if (complete_) return;
  if (streaming_) return write(std::move(head.body));  // a ping has already begun it
  if (!chunks_ || server_.draining) keep_alive_ = false;
  streaming_ = true;
  std::string bytes = head_text(head, true);
  if (chunks_ && !head.body.empty()) {
    append_chunk(bytes, head.body);
  } else {
    bytes += head.body;
  }
  more_ = std::move(head.more);
  complete_ = more_ != nullptr;
  queue(std::move(bytes));
}

// Disconnects a client that is too far behind to queue `more` bytes. Under a limit for all clients, one may be a single
// event behind whatever its share is.
bool HttpConnection::lags(size_t more) {
  const auto unsent = static_cast<int64_t>(queue_.size() + sending_.size() - sent_);
  const int64_t share = limits_->all_queued_bytes / kBytesPerUnsent / std::max<int64_t>(1, server_.answering);
  const bool above_share = limits_->all_queued_bytes > 0 && unsent > share;
  if (!above_share && unsent + static_cast<int64_t>(more) <= limits_->queued_bytes) return false;
  ++server_.cut;
  close();
  return true;
}

void HttpConnection::write(std::string bytes) {
  if (!streaming_ || complete_ || bytes.empty() || lags(bytes.size())) return;
  if (!chunks_) return queue(std::move(bytes));
  std::string chunk;
  append_chunk(chunk, bytes);
  queue(std::move(chunk));
}

void HttpConnection::finish(std::string bytes) {
  if (complete_) return;
  if (!streaming_) return close();  // a stream that ends without having begun has nothing to send, but must not stay
  if (lags(bytes.size())) return;
  complete_ = true;
  if (!chunks_) return queue(std::move(bytes));
  std::string last;
  if (!bytes.empty()) append_chunk(last, bytes);
  queue(last += "0\r\n\r\n");
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
  const auto silence =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits_->ping_seconds));
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

void HttpConnection::on_disconnect(std::function<void(bool)> gone) { gone_ = std::move(gone); }

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

// Writes synchronously what the socket accepts; only the rest needs an asynchronous write and a timeout.
void HttpConnection::send() {
  for (;;) {
    if (sent_ == sending_.size()) {
      sending_.clear();
      sent_ = 0;
      if (queue_.empty() && more_) {
        queue_more();
        no_limit();
        // The thread's other connections come first.
        return asio::post(executor(), [self = shared_from_this()] {
          if (!self->closed_) self->send();
        });
      }
      if (queue_.empty()) {
        no_limit();
        if (complete_) answered();
        return;
      }
      sending_.swap(queue_);
    }
    ErrorCode failed;
    const size_t bytes = stream_.write_now(sending_.data() + sent_, sending_.size() - sent_, failed);
    if (failed) return close();
    if (bytes == 0) break;
    sent_ += bytes;
  }
  limit(limits_->stall_seconds, [this] {
    ++server_.cut;
    close();
  });
  stream_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
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
  more_ = nullptr;
  ping_.clear();
  shrink(sending_);
  shrink(queue_);
  if (reading_) {  // the request timed out: its read is still pending
    stream_.end_writing();
    return close();
  }
  const bool unread = parser_.has_value();  // rejected before it was received completely
  parser_.reset();
  release_body();
  ErrorCode ignored;
  stream_.socket().cancel(ignored);  // watch_reader()'s wait
  if (keep_alive_ && !unread) return wait_for_request();
  stream_.end_writing();
  linger();
}

// Closing with unread bytes resets the connection, and the client may lose the answer: read and discard for a while.
void HttpConnection::linger() {
  limit(kLingerSeconds, [this] { close(); });
  discard();
}

void HttpConnection::discard() {
  stream_.async_read_some(asio::buffer(scrap_), [self = shared_from_this()](ErrorCode failed, size_t bytes) {
    self->discarded_ += static_cast<int64_t>(bytes);
    if (failed || self->closed_ || self->discarded_ > kMaxDiscarded) return self->close();
    self->discard();
  });
}

namespace {

// Runs `work` on the connection's strand if the request is still being answered; immediately if already on the strand.
template <typename Work>
void on_strand(const std::shared_ptr<HttpConnection>& connection, uint64_t number, Work work) {
  if (!connection) return;
  asio::dispatch(connection->executor(), [connection, number, work = std::move(work)]() mutable {
    if (connection->current(number)) work(*connection);
  });
}

}  // namespace

void Exchange::reply(HttpReply reply) const {
  if (facts_) {
    facts_->open(reply, false);
    facts_->end(reply.status, false);
  }
  if (taker_) {
    while (reply.more && reply.more(reply.body)) {
    }
    reply.more = nullptr;
    return taker_->reply(std::move(reply));
  }
  on_strand(connection_, number_, [reply = std::move(reply)](HttpConnection& c) mutable { c.reply(std::move(reply)); });
}
void Exchange::begin_stream(HttpReply head) const {
  if (facts_) facts_->open(head, true);
  if (facts_ && head.more) facts_->end(200, false);
  if (taker_) return taker_->begin_stream(std::move(head));
  on_strand(connection_, number_,
            [head = std::move(head)](HttpConnection& c) mutable { c.begin_stream(std::move(head)); });
}
void Exchange::write(std::string bytes) const {
  if (taker_) return taker_->write(std::move(bytes));
  on_strand(connection_, number_, [bytes = std::move(bytes)](HttpConnection& c) mutable { c.write(std::move(bytes)); });
}
void Exchange::finish(std::string bytes) const {
  if (facts_) facts_->end(200, false);
  if (taker_) return taker_->finish(std::move(bytes));
  on_strand(connection_, number_,
            [bytes = std::move(bytes)](HttpConnection& c) mutable { c.finish(std::move(bytes)); });
}
void Exchange::end(HttpReply reply, std::string bytes) const {
  if (facts_) {
    const int status = facts_->streamed ? 200 : reply.status;
    facts_->open(reply, false);
    facts_->end(status, false);
  }
  if (taker_) return taker_->end(std::move(reply), std::move(bytes));
  on_strand(connection_, number_, [reply = std::move(reply), bytes = std::move(bytes)](HttpConnection& c) mutable {
    c.end(std::move(reply), std::move(bytes));
  });
}
void Exchange::ping_with(HttpReply head, std::string ping) const {
  if (facts_) head.headers.insert(head.headers.end(), facts_->reply_headers.begin(), facts_->reply_headers.end());
  if (taker_) return taker_->ping_with(std::move(head), std::move(ping));
  on_strand(connection_, number_, [head = std::move(head), ping = std::move(ping)](HttpConnection& c) mutable {
    c.ping_with(std::move(head), std::move(ping));
  });
}

// Work posted after a disconnect still runs: it belongs to the request, not to the connection.
void Exchange::post(std::function<void()> work) const {
  if (taker_) return taker_->post(std::move(work));
  if (connection_) connection_->strand_queue().post(connection_, std::move(work));
}

void Exchange::on_disconnect(std::function<void()> gone) const {
  auto notify = [facts = facts_, gone = std::move(gone)](bool given_up) {
    gone();
    if (facts && given_up && facts->error.empty())
      facts->error = "draining", facts->error_message = "the server is shutting down";
    if (facts) facts->end(given_up ? 503 : 499, !given_up);  // 503 also if a head with 200 was sent: it is cut
  };
  if (taker_) return taker_->on_disconnect([notify = std::move(notify)] { notify(false); });
  if (!connection_) return;
  connection_->strand_queue().post(connection_,
                                   [connection = connection_, number = number_, notify = std::move(notify)]() mutable {
                                     if (connection->current(number))
                                       return connection->on_disconnect(std::move(notify));
                                     notify(false);  // already disconnected
                                   });
}

}  // namespace millrace
