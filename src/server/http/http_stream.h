// HttpStream: a plain or TLS socket with the interface of Asio's and Beast's algorithms. OpenSSL works on the socket
// directly; the only buffer in between is its own record, which is freed when it is empty. Everything runs on the
// socket's strand.
//
//   async_read_some    plain: the socket's own
//                      TLS:   SSL_read; on WANT_READ wait for the socket and repeat
#pragma once

#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <memory>

#include "server/http/tls_context.h"

namespace millrace {

using HttpSocket =
    boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::strand<boost::asio::io_context::executor_type>>;

class HttpStream {
 public:
  using ErrorCode = boost::system::error_code;
  using executor_type = HttpSocket::executor_type;

  // `tls` null: a plain socket.
  HttpStream(HttpSocket socket, std::shared_ptr<const TlsContext> tls);
  ~HttpStream();
  HttpStream(const HttpStream&) = delete;

  HttpSocket& socket() { return socket_; }
  executor_type get_executor() { return socket_.get_executor(); }
  bool encrypted() const { return ssl_ != nullptr; }

  // Returns true if received bytes are buffered in OpenSSL: the socket does not become readable for them.
  bool has_pending() const { return ssl_ && SSL_has_pending(ssl_) != 0; }
  enum class Reader { silent, speaks, left };
  Reader look();  // peeks at the client's side without consuming anything

  // Writes as many bytes as the socket accepts without blocking; 0 without an error: none now. Must not be called
  // during an async_write_some().
  size_t write_now(const char* data, size_t bytes, ErrorCode& failed);
  void end_writing();  // shuts down the sending side
  void close();

  template <typename Token>
  void async_handshake(Token&& token) {
    boost::asio::async_compose<Token, void(ErrorCode, size_t)>(Operation{*this, Step::handshake, nullptr, 0}, token,
                                                               socket_);
  }
  template <typename Buffers, typename Token>
  void async_read_some(const Buffers& buffers, Token&& token) {
    const boost::asio::mutable_buffer first = first_of<boost::asio::mutable_buffer>(buffers);
    boost::asio::async_compose<Token, void(ErrorCode, size_t)>(Operation{*this, Step::read, first.data(), first.size()},
                                                               token, socket_);
  }
  template <typename Buffers, typename Token>
  void async_write_some(const Buffers& buffers, Token&& token) {
    const boost::asio::const_buffer first = first_of<boost::asio::const_buffer>(buffers);
    boost::asio::async_compose<Token, void(ErrorCode, size_t)>(
        Operation{*this, Step::write, const_cast<void*>(first.data()), first.size()}, token, socket_);
  }

 private:
  enum class Step { handshake, read, write };
  enum class Outcome { done, wants_read, wants_write, failed };

  // The first non-empty buffer: a "some" operation may transfer less than everything.
  template <typename Buffer, typename Buffers>
  static Buffer first_of(const Buffers& buffers) {
    for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers); ++it)
      if (Buffer one(*it); one.size() > 0) return one;
    return {};
  }

  struct Operation {
    HttpStream& stream;
    Step step;
    void* data;
    size_t bytes;
    bool begun = false, over = false;
    ErrorCode result = {};
    size_t count = 0;

    template <typename Self>
    void operator()(Self& self, ErrorCode failed = {}, size_t moved = 0) {
      HttpSocket& socket = stream.socket_;
      if (over) return self.complete(result, count);
      if (!stream.ssl_) {
        if (begun) return self.complete(failed, moved);
        begun = true;
        if (step == Step::read) return socket.async_read_some(boost::asio::buffer(data, bytes), std::move(self));
        if (step == Step::write) return socket.async_write_some(boost::asio::buffer(data, bytes), std::move(self));
        over = true;
        return boost::asio::post(socket.get_executor(), std::move(self));
      }
      if (failed) return self.complete(failed, 0);
      const bool first = !begun;
      begun = true;
      switch (stream.advance(step, data, bytes, count, result)) {
        case Outcome::wants_read: return socket.async_wait(HttpSocket::wait_read, std::move(self));
        case Outcome::wants_write: return socket.async_wait(HttpSocket::wait_write, std::move(self));
        default: break;
      }
      if (!first) return self.complete(result, count);
      over = true;  // never complete from within the initiating call
      boost::asio::post(socket.get_executor(), std::move(self));
    }
  };

  Outcome advance(Step step, void* data, size_t bytes, size_t& count, ErrorCode& result);

  HttpSocket socket_;
  std::shared_ptr<const TlsContext> tls_;  // outlives ssl_
  ssl_st* ssl_ = nullptr;
};

}  // namespace millrace
