// Other engines' programs and servers that do not behave: they are ended, and nothing waits for them for ever.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "compare/engines/http_call.h"
#include "compare/engines/process.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// True for so long.
std::function<bool()> wanted_for(std::chrono::milliseconds time) {
  return [until = Clock::now() + time] { return Clock::now() < until; };
}

Result<ProcessOutput> run_shell(const std::string& script, std::chrono::milliseconds wanted = std::chrono::minutes(1)) {
  return run_process({"/bin/sh", "-c", script}, wanted_for(wanted));
}

TEST(EnginePrograms, OutputAndExitCodeAreCollected) {
  const auto done = run_shell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->output, "out\n");
  EXPECT_EQ(done->errors, "err\n");
  EXPECT_EQ(done->exit_code, 3);
  EXPECT_EQ(run_shell("kill -9 $$")->exit_code, 128 + 9);
  EXPECT_EQ(run_shell("head -c 300000 /dev/zero")->output.size(), 300000u);
}

TEST(EnginePrograms, OneThatClosesItsOutputAndRunsOnIsEnded) {
  const auto begin = Clock::now();
  const auto done = run_shell("exec >&- 2>&-; exec sleep 60", std::chrono::milliseconds(300));
  EXPECT_EQ(done.error().kind, ErrorKind::cancelled);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(run_shell("exec >&- 2>&-; sleep 0.3; exit 4")->exit_code, 4);
}

TEST(EnginePrograms, OneThatIgnoresTheSignalIsKilled) {
  const auto begin = Clock::now();
  const auto done = run_shell("trap '' TERM; while :; do sleep 0.1; done", std::chrono::milliseconds(300));
  EXPECT_EQ(done.error().kind, ErrorKind::cancelled);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

TEST(EnginePrograms, AnotherProgramThatHoldsItsOutputIsNotWaitedFor) {
  const auto begin = Clock::now();
  const auto done = run_shell("sleep 30 & echo done");
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->output, "done\n");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

// A server that accepts one connection, and answers it with this text if there is one.
class OneAnswer {
 public:
  explicit OneAnswer(std::string text) : text_(std::move(text)), listening_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listening_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listening_, 1), 0);
    EXPECT_EQ(::getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    if (!text_.empty()) thread_ = std::thread([this] { answer(); });
  }
  ~OneAnswer() {
    if (thread_.joinable()) thread_.join();
    ::close(listening_);
  }
  int port() const { return port_; }

 private:
  void answer() const {
    const int fd = ::accept(listening_, nullptr, nullptr);
    char asked[4096];
    EXPECT_GT(::recv(fd, asked, sizeof(asked), 0), 0);
    EXPECT_EQ(::send(fd, text_.data(), text_.size(), MSG_NOSIGNAL), std::ssize(text_));
    ::close(fd);
  }

  std::string text_;
  int listening_, port_ = 0;
  std::thread thread_;
};

TEST(EngineServers, Answers) {
  const OneAnswer server("HTTP/1.0 404 Not Found\r\nA: b\r\n\r\nnothing here");
  const auto reply = local_http_call(server.port(), "/x", "", [] { return true; });
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->status, 404);
  EXPECT_EQ(reply->body, "nothing here");
}

TEST(EngineServers, WhatIsNoHttpIsRefused) {
  for (const char* text : {"HTTP/1.0\r\n\r\na body", "HTTP/1.0 200", "SMTP 200 x\r\n\r\n", "HTTP/1.x\r\n\r\n"}) {
    const OneAnswer server(text);
    const auto reply = local_http_call(server.port(), "/", "body", [] { return true; });
    ASSERT_FALSE(reply.ok()) << text;
    EXPECT_EQ(reply.error().message, "the server's answer is not HTTP");
  }
}

TEST(EngineServers, SilentOnesAreGivenUp) {
  const OneAnswer server("");
  const auto call = [&](std::chrono::milliseconds wanted, const std::string& body) {
    return local_http_call(server.port(), "/", body, wanted_for(wanted), std::chrono::seconds(1)).error();
  };
  EXPECT_EQ(call(std::chrono::minutes(1), "").message, "the server has not answered within 1 s");
  EXPECT_EQ(call(std::chrono::milliseconds(200), "").kind, ErrorKind::cancelled);
  // More than the sockets' buffers: it is never all sent.
  EXPECT_EQ(call(std::chrono::milliseconds(200), std::string(size_t{32} << 20, 'x')).kind, ErrorKind::cancelled);
}

TEST(EngineServers, NothingListens) {
  const auto port = free_local_port();
  ASSERT_TRUE(port.ok());
  EXPECT_EQ(local_http_call(*port, "/", "", [] { return true; }).error().message,
            "no connection to port " + std::to_string(*port) + ": Connection refused");
}

}  // namespace
}  // namespace millrace
