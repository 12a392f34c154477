// HttpConnection: reads a request, passes it to the handler, writes the answer, and repeats until either side closes.
// Everything runs on the connection's strand. Private to the HTTP layer: http_connection.cc reads, http_answer.cc
// writes, http_server.cc accepts connections.
//
//   wait -> read head -> read body -> answering -> (written) -> wait ...
//                                        |  the socket is watched, so that a disconnect is reported immediately
//                                        |  queue_ grows by write(), at most limits.queued_bytes, and by more_,
//                                        |  whenever everything before has been sent; sending_ is being written
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/secret_memory.h"
#include "server/http/http.h"
#include "server/http/http_stream.h"
#include "server/http/strand_queue.h"

namespace millrace {

// The key of the per-peer connection limit: an IPv4 address, or an IPv6 /64 network, which a single host may own.
using PeerAddress = std::array<uint8_t, 16>;

struct HttpServer::State {
  HttpHandler handler;
  std::atomic<bool> draining{false}, stopping{false};
  std::atomic<int64_t> open{0}, late{0}, answering{0}, cut{0}, rejected{0}, turning_away{0}, body_bytes{0};
  std::mutex mutex;
  std::set<HttpConnection*> connections;  // `mutex` guards this and the members up to `io`
  std::map<PeerAddress, int64_t> peers;   // open connections
  std::shared_ptr<const HttpLimits> limits;
  std::shared_ptr<const TlsContext> tls;  // null: plain

  // The members below may hold the last reference to a connection, whose destructor uses the members above.
  boost::asio::io_context io;
  StrandQueue strand_queue{io};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> stay{io.get_executor()};
  boost::asio::io_context handling;  // runs the handlers
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> stay_handling{handling.get_executor()};
  // The acceptor and its timer are used on their own strand only.
  boost::asio::strand<boost::asio::io_context::executor_type> accepting{boost::asio::make_strand(io)};
  boost::asio::basic_socket_acceptor<boost::asio::ip::tcp, decltype(accepting)> acceptor{accepting};
  boost::asio::basic_waitable_timer<std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>,
                                    decltype(accepting)>
      accept_again{accepting};  // after an error that may go away as connections close
  int bound_port = 0;
  std::vector<std::thread> threads, workers;

  State(const HttpLimits& l, HttpHandler h, std::shared_ptr<const TlsContext> t)
      : handler(std::move(h)), limits(std::make_shared<HttpLimits>(l)), tls(std::move(t)) {}
  std::shared_ptr<const HttpLimits> current_limits() {
    std::lock_guard lock(mutex);
    return limits;
  }
  std::shared_ptr<const TlsContext> current_tls() {
    std::lock_guard lock(mutex);
    return tls;
  }
  void accept();
  void take(HttpSocket socket);
  bool has_room(const PeerAddress& peer);
  void turn_away(HttpSocket socket, const PeerAddress& peer);
  void stop_accepting();
  void give_up();
  Result<void> start_threads();
  static void run(boost::asio::io_context& context);
  template <typename Work>
  std::shared_ptr<std::atomic<int64_t>> for_each_connection(Work work);  // connections still to run `work`
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `rejected`: over the connection limit; the request is read only to answer in the format of its API.
  HttpConnection(HttpServer::State& server, HttpSocket socket, PeerAddress peer, bool rejected);
  ~HttpConnection();

  void enroll();  // adds it to the server's connections; call once, before start()
  void start();
  void leave_if_idle();
  void cut();
  void give_up();  // ends the answer in progress with an error in the client's API format
  auto executor() { return stream_.get_executor(); }
  StrandQueue& strand_queue() { return server_.strand_queue; }

  // On the strand, by Exchange; `number` is the request's.
  bool current(uint64_t number) const { return answering_ && number == number_; }
  void reply(HttpReply reply);
  void begin_stream(HttpReply head);
  void write(std::string bytes);
  void finish(std::string bytes);
  void end(HttpReply reply, std::string bytes);
  void ping_with(HttpReply head, std::string ping);
  void on_disconnect(std::function<void(bool given_up)> gone);

 private:
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::system::error_code;
  // Heads of requests contain API keys: memory that holds their bytes is overwritten before it is freed.
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body, WipingAllocator<char>>;
  using Buffer = boost::beast::basic_flat_buffer<WipingAllocator<char>>;

  void wait_for_request();
  void read_head();
  void read_more_of_head();
  void head_came(ErrorCode failed);
  bool take_target(std::string_view target);
  // The answer to a page's request for the path prefix without the slash behind it; nullopt: it is another request.
  std::optional<HttpReply> slash_redirect(std::string_view target) const;
  void refuse_for_room();
  void read_body();
  void body_came(ErrorCode failed);
  void take_head();
  void forget_parsed(size_t bytes);
  void forget_request();
  void take_proxy();
  std::string too_large() const;
  void refuse(int status, const std::string& message);
  void watch_reader();
  bool reserve_body();
  void release_body();
  void queue(std::string bytes);
  void send();
  void queue_more();
  void sent(ErrorCode failed, size_t bytes);
  bool lags(size_t more);
  void answered();
  void linger();
  void discard();
  void close();
  void limit(double seconds, std::function<void()> late);
  void no_limit();
  void arm_ping();
  std::string head_text(const HttpReply& reply, bool chunked) const;

  HttpServer::State& server_;
  HttpStream stream_;
  boost::asio::steady_timer timer_, ping_timer_;
  Buffer buffer_;
  std::optional<Parser> parser_;
  HttpRequest request_;
  HttpRequest answered_request_;  // method, path and some headers of the request being answered, for give_up()
  uint64_t number_ = 0;           // number of the request being answered
  bool answering_ = false;
  bool reading_ = false;  // the parser is in use
  bool keep_alive_ = true;
  bool chunks_ = true;      // for HTTP/1.0 clients the end of the connection ends a stream
  bool head_only_ = false;  // HEAD
  bool streaming_ = false;
  bool complete_ = false;  // the whole answer is queued
  bool closed_ = false;
  std::string queue_, sending_;
  std::function<bool(std::string&)> more_;  // source of a reply that is written in parts; null: no more
  size_t sent_ = 0;                         // bytes of sending_
  std::function<void(bool)> gone_;
  HttpReply ping_head_;
  std::string ping_;
  Clock::time_point last_write_;
  int64_t discarded_ = 0;
  int64_t reserved_body_ = 0;
  std::shared_ptr<const HttpLimits> limits_;  // limits at the beginning of the request
  PeerAddress peer_;
  const bool turned_away_;
  const bool late_;  // accepted while the server was draining: for one short request
  char scrap_[512];
};

}  // namespace millrace
