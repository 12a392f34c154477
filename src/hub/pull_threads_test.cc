// A download whose threads the system refuses: an error of its caller, not the end of the process.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "base/start_thread.h"
#include "hub/hub_cache.h"
#include "hub/pull.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A hub on loopback with one repository of one file, "abc". One request per connection.
class OneFileHub {
 public:
  OneFileHub() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 16), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~OneFileHub() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  void serve() const {
    for (int client; (client = ::accept(socket_, nullptr, nullptr)) >= 0; ::close(client)) {
      std::string request;
      char bytes[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t count = ::recv(client, bytes, sizeof(bytes), 0);
        if (count <= 0) break;
        request.append(bytes, static_cast<size_t>(count));
      }
      const std::string commit(40, 'c');
      const std::string list =
          R"({"sha": ")" + commit + R"(", "siblings": [{"rfilename": "m.gguf", "size": 3, "blobId": ")" + commit +
          R"(", "lfs": {"sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "size": 3}}]})";
      const std::string body = request.starts_with("GET /api/") ? list : "abc";
      const std::string reply =
          "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
      (void)::send(client, reply.data(), reply.size(), MSG_NOSIGNAL);
    }
  }

  int socket_;
  int port_ = 0;
  std::thread thread_;
};

TEST(PullThreads, ARefusedThreadIsTheErrorOfTheDownload) {
  const fs::path cache = fs::temp_directory_path() / ("millrace-pull-threads-" + std::to_string(::getpid()));
  fs::remove_all(cache);
  {
    const OneFileHub hub;
    const PullOptions options{
        .endpoint = hub.url(), .token = "", .cache = cache.string(), .offline = false, .wait_seconds = 0};
    const auto name = parse_hub_name("owner/name");
    ASSERT_TRUE(name.ok());
    {
      const ThreadShortage shortage(0);
      const auto refused = pull_model(*name, options);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().kind, ErrorKind::resource) << refused.error().message;
      EXPECT_NE(refused.error().message.find("thread"), std::string::npos) << refused.error().message;
      EXPECT_EQ(shortage.refused(), 1);
    }
    const auto pulled = pull_model(*name, options);
    ASSERT_TRUE(pulled.ok()) << pulled.error().message;
    EXPECT_EQ(pulled->bytes, 3);
  }
  fs::remove_all(cache);
}

}  // namespace
}  // namespace millrace
