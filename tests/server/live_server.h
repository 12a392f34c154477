// A server on loopback for tests, with the built-in model of stories, and a client over plain sockets that shows every
// byte.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "server/server.h"

namespace millrace {

inline std::shared_ptr<const LanguageModel> shipped_model() {
  static const auto model = [] {
    auto loaded = LanguageModel::load("stories", {.threads = 1});
    return loaded.ok() ? *loaded : nullptr;
  }();
  return model;
}

// A model with a chat template.
inline std::shared_ptr<const LanguageModel> templated_model(const std::string& chat_template, int64_t memory = 0) {
  LoadOptions options;
  options.threads = 1;
  options.chat_template = chat_template;
  options.memory = memory;
  auto loaded = LanguageModel::load("stories", options);
  EXPECT_TRUE(loaded.ok());
  return loaded.ok() ? *loaded : nullptr;
}

struct LiveServer {
  std::unique_ptr<Server> server;

  explicit LiveServer(ServiceOptions service = {}, HttpLimits http = {}, EngineOptions engine = {},
                      std::shared_ptr<const TlsContext> tls = nullptr,
                      std::shared_ptr<const LanguageModel> model = shipped_model()) {
    engine.threads = 1;
    http.port = 0;
    http.io_threads = 1;
    if (service.names.empty()) service.names = {"stories"};
    service.engine = engine;
    auto made = Engine::create(model, engine);
    EXPECT_TRUE(made.ok());
    auto started = Server::start(model, std::move(*made), std::move(service), http, std::move(tls));
    EXPECT_TRUE(started.ok());
    server = std::move(*started);
  }
  int port() const { return server->port(); }
  Engine& engine() { return server->service().engine(); }
};

struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  Json json() const { return Json::parse(body, nullptr, false); }
};

// Blocking, with a timeout that only a failing test reaches.
class Client {
 public:
  explicit Client(int port, int receive_bytes = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    timeval limit{120, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { leave(); }
  Client(const Client&) = delete;

  int socket() const { return socket_; }
  void leave() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void send(const std::string& bytes) {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  void post(const std::string& path, const std::string& body, const std::string& headers = "") {
    send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body);
  }
  void get(const std::string& path, const std::string& headers = "", const std::string& method = "GET") {
    send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  }

  // False: the other side closed, or the connection failed.
  bool receive() {
    char bytes[16384];
    ssize_t count;
    do {
      count = ::recv(socket_, bytes, sizeof(bytes), 0);
    } while (count < 0 && errno == EINTR);
    if (count < 0) std::fprintf(stderr, "receiving: %s\n", std::strerror(errno));
    if (count > 0) held_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }

  Response head() {
    Response out;
    size_t end;
    while ((end = held_.find("\r\n\r\n")) == std::string::npos)
      if (!receive()) return out;
    std::string text = held_.substr(0, end + 2);
    held_.erase(0, end + 4);
    out.status = std::atoi(text.c_str() + 9);
    for (size_t at = text.find("\r\n") + 2; at < text.size();) {
      const size_t line_end = text.find("\r\n", at), colon = text.find(": ", at);
      std::string name = text.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      out.headers[name] = text.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    return out;
  }

  // The next chunk of a stream; "" at its end, or when the other side closed.
  std::string chunk() {
    const auto need = [&](size_t bytes) {
      while (held_.size() < bytes)
        if (!receive()) return false;
      return true;
    };
    size_t end;
    while ((end = held_.find("\r\n")) == std::string::npos)
      if (!receive()) return "";
    const size_t size = std::stoul(held_.substr(0, end), nullptr, 16);
    if (!need(end + 2 + size + 2)) return "";
    std::string out = held_.substr(end + 2, size);
    held_.erase(0, end + 2 + size + 2);
    return out;
  }

  Response response() {
    Response out = head();
    if (out.headers["transfer-encoding"] == "chunked") {
      for (std::string part = chunk(); !part.empty(); part = chunk()) out.body += part;
      return out;
    }
    const size_t size = out.headers.count("content-length") ? std::stoul(out.headers["content-length"]) : 0;
    while (held_.size() < size)
      if (!receive()) break;
    out.body = held_.substr(0, size);
    held_.erase(0, size);
    return out;
  }

  // Everything until the other side closes.
  std::string rest() {
    while (receive()) {
    }
    return std::exchange(held_, {});
  }

 private:
  int socket_ = -1;
  std::string held_;
};

inline Response post(int port, const std::string& path, const std::string& body, const std::string& headers = "") {
  Client client(port);
  client.post(path, body, headers);
  return client.response();
}
inline Response get(int port, const std::string& path, const std::string& headers = "") {
  Client client(port);
  client.get(path, headers);
  return client.response();
}

// The "data: " payloads of a stream of events.
inline std::vector<std::string> events_of(const std::string& stream) {
  std::vector<std::string> out;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    std::string frame = stream.substr(at, end - at);
    if (const size_t data = frame.find("data: "); data != std::string::npos) out.push_back(frame.substr(data + 6));
    if (end == std::string::npos) break;
    at = end + 2;
  }
  return out;
}

// The engine's own answer.
struct Direct {
  std::vector<TokenId> tokens;
  std::string text;
};
inline Direct ask_engine(Engine& engine, Request request) {
  Direct out;
  auto stream = engine.submit(std::move(request));
  if (!stream.ok()) return out;
  while (auto event = (*stream)->next()) {
    if (event->token >= 0) out.tokens.push_back(event->token);
    out.text += event->text;
  }
  return out;
}

// Waits until `done`, which a passing test reaches soon.
template <typename Done>
bool comes_true(Done done) {
  for (int i = 0; i < 6000; ++i) {
    if (done()) return true;
    ::poll(nullptr, 0, 10);
  }
  return false;
}

}  // namespace millrace
