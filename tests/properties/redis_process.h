// Debian's redis-server as a child process on a free port of loopback, and a relay in front of it that stops passing
// replies on after some bytes, so that a test can end the server in the middle of one.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace millrace::testing {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
// -1: nothing listens there.
inline int connect_to_port(int port) {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = loopback(port);
  if (::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return made;
  ::close(made);
  return -1;
}
inline int listen_anywhere(int& port) {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback(0);
  socklen_t bytes = sizeof address;
  EXPECT_EQ(::bind(made, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(made, 8), 0);
  EXPECT_EQ(::getsockname(made, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  port = ntohs(address.sin_port);
  return made;
}

class RedisProcess {
 public:
  static std::string program() {  // empty: not installed
    for (const char* path : {"/usr/bin/redis-server", "/usr/local/bin/redis-server", "/bin/redis-server"})
      if (::access(path, X_OK) == 0) return path;
    return {};
  }

  RedisProcess() {
    std::string pattern = ::testing::TempDir() + "redis_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    ::close(listen_anywhere(port_));
    const std::string path = program(), port = std::to_string(port_), log = folder_ + "/log";
    std::vector<const char*> arguments = {path.c_str()};
    for (const char* word : {"--port", port.c_str(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir",
                             folder_.c_str(), "--logfile", log.c_str()})
      arguments.push_back(word);
    arguments.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::execv(path.c_str(), const_cast<char* const*>(arguments.data()));
      ::_exit(127);
    }
    for (int i = 0; i < 3000 && !started_; ++i) {
      const int made = connect_to_port(port_);
      started_ = made >= 0;
      if (started_)
        ::close(made);
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~RedisProcess() {
    kill();
    std::filesystem::remove_all(folder_);
  }
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  bool started() const { return started_; }
  int port() const { return port_; }

 private:
  std::string folder_;
  int port_ = 0;
  pid_t child_ = -1;
  bool started_ = false;
};

// Passes on everything of one client, and of the server's replies the first `allowance` bytes.
class Relay {
 public:
  Relay(int server_port, int64_t allowance) : server_port_(server_port), left_(allowance) {
    listener_ = listen_anywhere(port_);
    thread_ = std::thread([this] { serve(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
    for (const int socket : {listener_, client_, server_})
      if (socket >= 0) ::close(socket);
  }
  int port() const { return port_; }
  bool holds() const { return left_ == 0; }

 private:
  void serve() {
    while (!stop_) {
      if (client_ < 0) {
        accept_one();
        continue;
      }
      std::array<pollfd, 2> ready{pollfd{client_, POLLIN, 0}, pollfd{server_, POLLIN, 0}};
      if (::poll(ready.data(), ready.size(), 2) <= 0) continue;
      if (ready[0].revents && !pass(client_, server_, INT64_MAX)) end();
      if (client_ < 0 || !ready[1].revents) continue;
      char byte = 0;
      if (left_ == 0 && ::recv(server_, &byte, 1, MSG_PEEK) > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (!ended_by_server()) continue;
      }
      if (!pass(server_, client_, left_)) end();
    }
  }
  // Returns true if the server has closed the connection, behind bytes that are held.
  bool ended_by_server() const {
    pollfd one{server_, POLLRDHUP, 0};
    return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR));
  }
  void accept_one() {
    pollfd one{listener_, POLLIN, 0};
    if (::poll(&one, 1, 2) <= 0) return;
    client_ = ::accept(listener_, nullptr, nullptr);
    server_ = connect_to_port(server_port_);
    if (server_ < 0) end();
  }
  bool pass(int from, int to, int64_t limit) {
    std::array<char, 4096> bytes;
    if (limit == 0) return false;
    const ssize_t count = ::recv(from, bytes.data(), std::min<size_t>(bytes.size(), static_cast<size_t>(limit)), 0);
    if (count <= 0 || ::send(to, bytes.data(), static_cast<size_t>(count), MSG_NOSIGNAL) != count) return false;
    if (from == server_) left_ -= count;
    return true;
  }
  void end() {
    ::close(client_);
    if (server_ >= 0) ::close(server_);
    client_ = server_ = -1;
  }

  const int server_port_;
  std::atomic<int64_t> left_;
  std::atomic<bool> stop_ = false;
  int listener_ = -1, port_ = 0, client_ = -1, server_ = -1;
  std::thread thread_;
};

}  // namespace millrace::testing
