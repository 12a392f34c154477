// NodeCall: one HTTP/1.1 request to another machine's server, on a connection of its own. The answer is passed on as it
// arrives, so that a stream reaches the client token by token. Nothing blocks: the calls of a router share one
// io_context, and the functions of Events run on a strand of the call.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/http.h"

namespace millrace {

struct NodeAddress {
  std::string host;  // an IPv6 address without brackets
  std::string port;

  // "HOST:PORT" or "http://HOST:PORT". Errors: user; unsupported (https).
  static Result<NodeAddress> parse(const std::string& text);
  std::string host_and_port() const;
  std::string url() const { return "http://" + host_and_port(); }
};

struct NodeRequest {
  std::string method = "GET", target = "/";  // the target is percent-encoded and has the query
  HttpHeaders headers;                       // without Host and Content-Length
  std::string body;
};

struct NodeHead {
  int status = 0;
  HttpHeaders headers;  // names in lower case

  std::string_view header(std::string_view name) const;  // "" when absent
};

class NodeCall {
 public:
  struct Events {
    std::function<void(NodeHead)> head;
    std::function<void(std::string_view)> body = nullptr;  // the next bytes; null: they are dropped
    // The answer is complete, or failed: the connection was refused or lost, or the answer is not HTTP (network).
    // Nothing follows.
    std::function<void(std::optional<Error>)> end;
  };
  // `seconds`: for connecting, and then between two parts of the answer; 0: no limit.
  static std::shared_ptr<NodeCall> start(boost::asio::io_context& io, const NodeAddress& node, NodeRequest request,
                                         double connect_seconds, double silent_seconds, Events events);

  // Closes the connection. No function of Events is called afterwards, unless it runs already on another thread.
  virtual void cancel() = 0;

 protected:
  NodeCall() = default;
  ~NodeCall() = default;
};

}  // namespace millrace
