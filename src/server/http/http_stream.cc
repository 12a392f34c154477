#include "server/http/http_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <boost/asio/error.hpp>

#include "base/system.h"

namespace millrace {

namespace asio = boost::asio;

namespace {

// OpenSSL's own socket BIO writes with write(), which raises SIGPIPE after a disconnect.
int fd_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

bool try_later() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

int send_bytes(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const auto sent = send_quietly(fd_of(bio), bytes, static_cast<size_t>(count), MSG_DONTWAIT);
  if (sent < 0 && try_later()) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int receive_bytes(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const auto came = ::recv(fd_of(bio), bytes, static_cast<size_t>(count), MSG_DONTWAIT);
  if (came < 0 && try_later()) BIO_set_retry_read(bio);
  if (came == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(came);
}

long control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
  return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without signals");
    BIO_meth_set_write(made, send_bytes);
    BIO_meth_set_read(made, receive_bytes);
    BIO_meth_set_ctrl(made, control);
    return made;
  }();
  return method;
}

}  // namespace

HttpStream::HttpStream(HttpSocket socket, std::shared_ptr<const TlsContext> tls)
    : socket_(std::move(socket)), tls_(std::move(tls)) {
  if (!tls_) return;
  ErrorCode ignored;
  socket_.non_blocking(true, ignored);
  ssl_ = SSL_new(tls_->get());
  BIO* bio = BIO_new(socket_method());
  if (!ssl_ || !bio) {
    SSL_free(ssl_);
    BIO_free(bio);
    throw std::bad_alloc();
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket_.native_handle())));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_accept_state(ssl_);
}

HttpStream::~HttpStream() { SSL_free(ssl_); }

HttpStream::Outcome HttpStream::advance(Step step, void* data, size_t bytes, size_t& count, ErrorCode& result) {
  if (!socket_.is_open()) {
    result = asio::error::operation_aborted;
    return Outcome::failed;
  }
  if (step != Step::handshake && bytes == 0) return Outcome::done;
  ERR_clear_error();
  const int answer = step == Step::handshake ? SSL_do_handshake(ssl_)
                     : step == Step::read    ? SSL_read_ex(ssl_, data, bytes, &count)
                                             : SSL_write_ex(ssl_, data, bytes, &count);
  if (answer == 1) return Outcome::done;
  const int why = SSL_get_error(ssl_, answer);
  ERR_clear_error();
  if (why == SSL_ERROR_WANT_READ) return Outcome::wants_read;
  if (why == SSL_ERROR_WANT_WRITE) return Outcome::wants_write;
  if (why == SSL_ERROR_ZERO_RETURN) {
    result = asio::error::eof;
  } else {
    result = asio::error::connection_reset;
  }
  return Outcome::failed;
}

size_t HttpStream::write_now(const char* data, size_t bytes, ErrorCode& failed) {
  size_t count = 0;
  if (ssl_) {
    advance(Step::write, const_cast<char*>(data), bytes, count, failed);
    return count;
  }
  const auto sent = send_quietly(socket_.native_handle(), data, bytes, MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (!try_later()) failed = asio::error::connection_reset;
  return 0;
}

HttpStream::Reader HttpStream::look() {
  char byte;
  if (ssl_) {
    ERR_clear_error();
    size_t count = 0;
    const int answer = SSL_peek_ex(ssl_, &byte, 1, &count);
    if (answer == 1) return Reader::speaks;
    const int why = SSL_get_error(ssl_, answer);
    ERR_clear_error();
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? Reader::silent : Reader::left;
  }
  const auto came = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (came > 0) return Reader::speaks;
  return came < 0 && try_later() ? Reader::silent : Reader::left;
}

void HttpStream::end_writing() {
  if (ssl_ && SSL_is_init_finished(ssl_)) {
    ERR_clear_error();
    SSL_shutdown(ssl_);  // sends close_notify, if the socket has room
    ERR_clear_error();
  }
  ErrorCode ignored;
  socket_.shutdown(HttpSocket::shutdown_send, ignored);
}

void HttpStream::close() {
  if (!socket_.is_open()) return;
  if (ssl_ && SSL_is_init_finished(ssl_)) {
    ERR_clear_error();
    SSL_shutdown(ssl_);
    ERR_clear_error();
  }
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace millrace
