// The HTTP/1.1 interface used by the rest of the server: a handler receives a complete request and answers it through
// an Exchange. Only http_connection.cc and http_server.cc deal with sockets, timers and parsing.
//
//   I/O threads    read requests and write answers; never block, never compute
//   workers        run the handler: parse, and pass slow work to separate threads
//   engine thread  posts its events to an exchange without waiting
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
#include "server/access/key_digest.h"

namespace millrace {

class KeyAccount;
class TlsContext;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // "/v1/models", percent-decoded
  std::string query;    // after the '?', undecoded
  HttpHeaders headers;  // names in lower case; without those that give a key
  std::string body;
  std::string client;  // identifies the client when there is no API key: peer address, or its IPv6 /64 network
  bool by_trusted_proxy = false;        // the peer is one of HttpLimits::trusted_proxies
  std::shared_ptr<KeyAccount> account;  // account of the API key; set by admit(), null on a server without keys
  std::optional<GivenKey> given = {};   // nothing: the request did not arrive over HTTP

  std::string_view header(std::string_view name) const;  // "" when absent
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
  // Appends the next part of a long body, which follows `body`, and returns false if it was the last one. Called when
  // the client has received all parts before it. Null: `body` is complete.
  std::function<bool(std::string& out)> more = nullptr;
  bool close = false;      // close the connection after this answer
  std::string error, why;  // kind and message of an error, for log and trace
};

struct HttpLimits {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free port
  int io_threads = 2;
  int workers = 2;
  int64_t connections = 4096;
  int64_t peer_connections = 1024;  // per peer address; 0: no separate limit
  int64_t header_bytes = 16 << 10;
  int64_t body_bytes = int64_t{8} << 20;
  int64_t bodies_bytes = int64_t{256} << 20;  // total of all request bodies being received
  int64_t queued_bytes = int64_t{1} << 20;    // unsent bytes per stream; above this the client is disconnected
  int64_t all_queued_bytes = 0;               // ... of all streams together, each with an equal share; 0: no limit
  double handshake_seconds = 10;              // to complete the TLS handshake
  double idle_seconds = 300;                  // between requests on a connection
  double read_seconds = 60;                   // to receive a complete request
  double stall_seconds = 60;                  // without the client accepting a byte
  double ping_seconds = 15;                   // a stream idle for this long is sent a ping
  // Removed from the beginning of paths, for proxies that pass it on; "/llm", "": nothing.
  std::string path_prefix;
  std::vector<std::string> trusted_proxies;  // addresses whose X-Forwarded-For and X-Forwarded-Host count
};

class HttpConnection;
struct RequestFacts;
class AnswerTaker;  // answer_taker.h

// One request being answered: either reply(), or begin_stream(), write() ... and finish(). Thread-safe. Calls made
// after the client disconnected are dropped. Copies refer to the same request.
class Exchange {
 public:
  Exchange() = default;
  Exchange(std::shared_ptr<HttpConnection> connection, uint64_t number)
      : connection_(std::move(connection)), number_(number) {}

  explicit Exchange(std::shared_ptr<AnswerTaker> taker) : taker_(std::move(taker)) {}  // instead of a connection

  void reply(HttpReply reply) const;  // in parts, if it has `more`; a taker receives it complete
  // head.body is the first part of the stream; with `more`, which follows, the stream needs no finish().
  void begin_stream(HttpReply head) const;
  void write(std::string bytes) const;
  void finish(std::string bytes = {}) const;
  // finish(bytes) if a stream has begun, otherwise reply().
  void end(HttpReply reply, std::string bytes) const;
  // Sends `ping` whenever the answer has been idle for HttpLimits::ping_seconds, beginning the stream with `head` if
  // necessary.
  void ping_with(HttpReply head, std::string ping) const;
  // Runs `work` on the connection's strand; tasks posted to one exchange run in order, one at a time.
  void post(std::function<void()> work) const;
  // Called once on the strand if the client disconnects, or is disconnected, before the answer is complete.
  void on_disconnect(std::function<void()> gone) const;

  // The request's record for log, trace and metrics; null: not recorded.
  void note(std::shared_ptr<RequestFacts> facts) { facts_ = std::move(facts); }
  const std::shared_ptr<RequestFacts>& facts() const { return facts_; }
  const std::shared_ptr<AnswerTaker>& taker() const { return taker_; }  // null: a connection

 private:
  std::shared_ptr<HttpConnection> connection_;
  uint64_t number_ = 0;
  std::shared_ptr<RequestFacts> facts_;
  std::shared_ptr<AnswerTaker> taker_;
};

struct FinalReply {
  HttpReply whole;    // if no answer has begun
  std::string event;  // last event of a stream that has begun
};

struct HttpHandler {
  // Called on an I/O thread before the body is read. Returning a reply rejects the request; the
  // connection is closed unless the request has no body left to read.
  std::function<std::optional<HttpReply>(HttpRequest&)> admit;
  // Called on a worker.
  std::function<void(HttpRequest, Exchange)> handle;
  // Formats the errors of the HTTP layer itself: bad syntax (400, 501), too large (413, 431), too slow (408), too many
  // (429, 503).
  std::function<HttpReply(const HttpRequest&, int status, const std::string& message)> refuse;
  // The end of an answer that is still open when the server stops; null: nothing is sent. The request has only its
  // method, path, id and origin.
  std::function<FinalReply(const HttpRequest&)> give_up;
};

struct HttpCounts {
  int64_t connections = 0;  // open
  int64_t answering = 0;    // open connections with a request in progress
  int64_t slow_readers_cut = 0;
  int64_t rejected = 0;  // connections rejected because there were too many
};

class HttpServer {
 public:
  // Starts listening and serving. Errors: user (bad address), network (address in use, no permission).
  static Result<std::unique_ptr<HttpServer>> start(const HttpLimits& limits, HttpHandler handler,
                                                   std::shared_ptr<const TlsContext> tls = nullptr);
  ~HttpServer();  // stop()

  int port() const;
  HttpCounts counts() const;

  // Applies to new connections and to new requests on open ones. Host, port and thread counts do not change. A server
  // without TLS stays without it; a TLS server keeps its certificate if `tls` is null.
  void change(const HttpLimits& limits, std::shared_ptr<const TlsContext> tls);
  // Answers in progress continue; open connections end after them. New connections are still accepted, so that probes
  // learn the server's state: each receives one answer, from the handler, which knows which requests it refuses.
  void drain();
  bool drained() const;  // no connection that was open when drain() was called is left
  // Ends open answers with HttpHandler::give_up(), allows one second to send them, closes all connections and joins the
  // threads.
  void stop();

  struct State;  // http_connection.h

 private:
  HttpServer();
  std::shared_ptr<State> state_;
};

// "a%20b" -> "a b"; nullopt if an escape is malformed.
std::optional<std::string> percent_decoded(std::string_view text);
const char* http_reason(int status);

}  // namespace millrace
