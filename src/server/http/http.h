// HTTP/1.1 as the server's parts see it: a request comes in whole, its Exchange takes the answer. Sockets, timers and
// parsing are in http_connection.cc and http_server.cc alone.
//
//   I/O threads    read requests, write answers; never wait, never compute
//   workers        run the handler: parse, tokenize, submit
//   engine thread  posts its events to an exchange and goes on
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

class KeyAccount;
class TlsContext;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // "/v1/models", percent-decoded
  std::string query;    // after the '?', as it came
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string client;  // who asks, where no key says it: the address of the other side, or its IPv6 network
  std::shared_ptr<KeyAccount> account;  // whose request it is; set by admit(), null where there are no keys

  std::string_view header(std::string_view name) const;  // "" when absent
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
  bool close = false;      // the connection ends with this answer
  std::string error, why;  // of a refusal, for log and trace: its kind and message
};

struct HttpLimits {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any that is free
  int io_threads = 2;
  int workers = 2;
  int64_t connections = 4096;
  int64_t peer_connections = 1024;  // of one address; 0: as many as there may be
  int64_t header_bytes = 16 << 10;
  int64_t body_bytes = int64_t{8} << 20;
  int64_t bodies_bytes = int64_t{256} << 20;  // of all requests that are coming in
  int64_t queued_bytes = int64_t{1} << 20;    // of one stream, written by us and not yet taken by its reader; more: cut
  double handshake_seconds = 10;              // for TLS to be agreed on
  double idle_seconds = 300;                  // between requests of a connection
  double read_seconds = 60;                   // for a request to come in whole
  double stall_seconds = 60;                  // without a byte taken by the reader
  double ping_seconds = 15;                   // a stream that is silent so long gets its ping
};

class HttpConnection;
struct RequestFacts;
class AnswerTaker;  // answer_taker.h

// One request being answered: either reply(), or begin_stream(), write() ... and finish(). Any thread may call any of
// it, in any order with the reader's leaving: what comes too late is dropped. Copies speak for the same request.
class Exchange {
 public:
  Exchange() = default;
  Exchange(std::shared_ptr<HttpConnection> connection, uint64_t number)
      : connection_(std::move(connection)), number_(number) {}

  explicit Exchange(std::shared_ptr<AnswerTaker> taker) : taker_(std::move(taker)) {}  // instead of a connection

  void reply(HttpReply reply) const;
  void begin_stream(HttpReply head) const;  // its body is what the stream begins with
  void write(std::string bytes) const;
  void finish(std::string bytes = {}) const;
  // reply(), or finish() with `bytes` where a stream has begun.
  void end(HttpReply reply, std::string bytes) const;
  // Sends `ping` whenever the answer was silent for the limits' ping_seconds, and begins the stream with `head` for
  // that.
  void ping_with(HttpReply head, std::string ping) const;
  // Runs on the connection's strand: what is posted to one exchange runs in order, one at a time.
  void post(std::function<void()> work) const;
  // Called once on the strand when the reader goes away, or is cut, before the answer was written.
  void on_gone(std::function<void()> gone) const;

  // What is noted of the request, and told of its end; null: nothing is.
  void note(std::shared_ptr<RequestFacts> facts) { facts_ = std::move(facts); }
  const std::shared_ptr<RequestFacts>& facts() const { return facts_; }

 private:
  std::shared_ptr<HttpConnection> connection_;
  uint64_t number_ = 0;
  std::shared_ptr<RequestFacts> facts_;
  std::shared_ptr<AnswerTaker> taker_;
};

struct LastWords {
  HttpReply whole;    // where no answer has begun
  std::string event;  // as the last of a stream
};

struct HttpHandler {
  // On an I/O thread, with the body still to come: an answer refuses the request, and the connection ends.
  std::function<std::optional<HttpReply>(HttpRequest&)> admit;
  // On a worker.
  std::function<void(HttpRequest, Exchange)> handle;
  // What the HTTP layer refuses by itself: bad syntax (400, 501), too large (413, 431), too slow (408), too many (429,
  // 503).
  std::function<HttpReply(const HttpRequest&, int status, const std::string& message)> refuse;
  // What an answer that is still open ends with when the server goes; null: nothing. Of the request there is what its
  // head said of path and id.
  std::function<LastWords(const HttpRequest&)> give_up;
};

struct HttpCounts {
  int64_t connections = 0;  // open
  int64_t answering = 0;    // of those, with a request under way
  int64_t slow_readers_cut = 0;
  int64_t turned_away = 0;  // connections, because there were too many
};

class HttpServer {
 public:
  // Listens and begins to serve. Errors: user (the address), resource (in use, no permission).
  static Result<std::unique_ptr<HttpServer>> start(const HttpLimits& limits, HttpHandler handler,
                                                   std::shared_ptr<const TlsContext> tls = nullptr);
  ~HttpServer();  // stop()

  int port() const;
  HttpCounts counts() const;

  // For connections that begin, and requests that begin on open ones; host, port and threads stay. A plain server stays
  // plain, and TLS without new files keeps the old ones.
  void change(const HttpLimits& limits, std::shared_ptr<const TlsContext> tls);
  // Takes no more connections, and no more requests on those that are open; answers under way go on.
  void drain();
  // Ends what is still open with the handler's last words, which have a second to be taken, cuts the rest and joins the
  // threads.
  void stop();

  struct State;  // http_connection.h

 private:
  HttpServer();
  std::shared_ptr<State> state_;
};

// "a b" from "a%20b"; nothing where the escapes are malformed.
std::optional<std::string> percent_decoded(std::string_view text);
const char* http_reason(int status);

}  // namespace millrace
