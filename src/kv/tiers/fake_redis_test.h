// A Redis server of a few commands for tests, on loopback, in a thread of the test: it stores values in a map, and the
// test decides for each command what is sent in place of the proper reply.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {

class FakeRedis {
 public:
  using Command = std::vector<std::string>;
  // The server sends `bytes` in place of `reply`, which may be none, and then closes the connection if `close`.
  struct Answer {
    std::string bytes;
    bool close = false;
  };
  using Answers = std::function<Answer(const Command&, const std::string& reply)>;

  explicit FakeRedis(int port = 0, std::string password = {}) : password_(std::move(password)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeRedis() {
    stop_ = true;
    thread_.join();
    for (auto& [socket, input] : clients_) ::close(socket);
    ::close(listener_);
  }
  int port() const { return port_; }

  void answer(Answers answers) {
    std::lock_guard lock(mutex_);
    answers_ = std::move(answers);
  }
  std::map<std::string, std::string> values() {
    std::lock_guard lock(mutex_);
    return values_;
  }
  void change(const std::function<void(std::map<std::string, std::string>&)>& change) {
    std::lock_guard lock(mutex_);
    change(values_);
  }
  int64_t count(const std::string& command) {
    std::lock_guard lock(mutex_);
    return counts_[command];
  }
  int64_t connections() const { return connections_; }

 private:
  void serve() {
    while (!stop_) {
      std::vector<pollfd> ready{{listener_, POLLIN, 0}};
      for (const auto& [socket, input] : clients_) ready.push_back({socket, POLLIN, 0});
      if (::poll(ready.data(), ready.size(), 2) <= 0) continue;
      if (ready[0].revents) {
        if (const int made = ::accept(listener_, nullptr, nullptr); made >= 0) {
          clients_[made];
          ++connections_;
        }
      }
      for (size_t i = 1; i < ready.size(); ++i)
        if (ready[i].revents && !receive(ready[i].fd)) {
          ::close(ready[i].fd);
          clients_.erase(ready[i].fd);
        }
    }
  }

  bool receive(int socket) {
    std::string& input = clients_[socket];
    std::vector<char> bytes(1 << 16);
    const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (count <= 0) return false;
    input.append(bytes.data(), static_cast<size_t>(count));
    while (const auto command = take(input)) {
      std::lock_guard lock(mutex_);
      ++counts_[command->front()];
      const std::string reply = run(*command);
      const Answer answer = answers_ ? answers_(*command, reply) : Answer{reply};
      for (size_t sent = 0; sent < answer.bytes.size();) {
        const ssize_t some = ::send(socket, answer.bytes.data() + sent, answer.bytes.size() - sent, MSG_NOSIGNAL);
        if (some <= 0) return false;
        sent += static_cast<size_t>(some);
      }
      if (answer.close) return false;
    }
    return true;
  }

  // The first whole command: *N, then N times $LENGTH and the bytes.
  static std::optional<Command> take(std::string& input) {
    size_t at = 0;
    const auto number = [&]() -> int64_t {
      const size_t end = input.find("\r\n", at);
      if (end == std::string::npos) return -1;
      const int64_t value = std::stoll(input.substr(at + 1, end - at - 1));
      at = end + 2;
      return value;
    };
    Command command;
    const int64_t parts = number();
    if (parts < 0) return std::nullopt;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t bytes = at < input.size() ? number() : -1;
      if (bytes < 0 || at + static_cast<size_t>(bytes) + 2 > input.size()) return std::nullopt;
      command.push_back(input.substr(at, static_cast<size_t>(bytes)));
      at += static_cast<size_t>(bytes) + 2;
    }
    input.erase(0, at);
    return command;
  }

  std::string run(const Command& command) {
    const std::string& name = command[0];
    if (name == "AUTH") return command.back() == password_ ? "+OK\r\n" : "-WRONGPASS no such password\r\n";
    if (name == "SELECT") return "+OK\r\n";
    if (name == "PING") return password_.empty() || counts_["AUTH"] > 0 ? "+PONG\r\n" : "-NOAUTH log in first\r\n";
    if (name == "TOUCH") return fmt::format(":{}\r\n", values_.count(command[1]));
    if (name == "SET") {
      values_[command[1]] = command[2];
      return "+OK\r\n";
    }
    if (name != "GETRANGE") return "-ERR unknown command\r\n";
    const auto found = values_.find(command[1]);
    const std::string value = found == values_.end() ? "" : found->second.substr(0, std::stoull(command[3]) + 1);
    return fmt::format("${}\r\n{}\r\n", value.size(), value);
  }

  const std::string password_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> connections_ = 0;
  std::map<int, std::string> clients_;  // socket and what it has sent
  std::mutex mutex_;
  Answers answers_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counts_;
  std::thread thread_;
};

}  // namespace millrace
