// A server that was stopped just after it had accepted a connection crashed: one I/O thread closed the acceptor while
// another one began the next accept on it, and a new connection was in the server's set before a reference to it could
// be taken. The tests stopped idle servers.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "server/http/http.h"

namespace millrace {
namespace {

namespace asio = boost::asio;

HttpHandler refuses_all() {
  HttpHandler handler;
  handler.admit = [](HttpRequest&) { return HttpReply{.status = 404}; };
  handler.handle = [](HttpRequest, Exchange) {};
  handler.refuse = [](const HttpRequest&, int status, const std::string&) { return HttpReply{.status = status}; };
  return handler;
}

// Connects as fast as it can until it is stopped.
void flood(int port, const std::atomic<bool>& over) {
  asio::io_context io;
  const asio::ip::tcp::endpoint server(asio::ip::address_v4::loopback(), static_cast<uint16_t>(port));
  while (!over) {
    asio::ip::tcp::socket socket(io);
    boost::system::error_code failed;
    socket.connect(server, failed);
    if (failed) continue;
    asio::write(socket, asio::buffer("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27), failed);
  }
}

TEST(StopAmongConnections, StopsWithoutACrash) {
  for (int round = 0; round < 200; ++round) {
    HttpLimits limits;
    limits.port = 0;
    limits.io_threads = 4;
    auto server = HttpServer::start(limits, refuses_all());
    ASSERT_TRUE(server.ok()) << server.error().message;
    std::atomic<bool> over{false};
    std::vector<std::thread> clients;
    for (int i = 0; i < 3; ++i) clients.emplace_back(flood, (*server)->port(), std::cref(over));
    std::this_thread::sleep_for(std::chrono::microseconds(500 + round * 20));
    (*server)->drain();
    (*server)->stop();
    EXPECT_EQ((*server)->counts().connections, 0);
    over = true;
    for (std::thread& client : clients) client.join();
  }
}

}  // namespace
}  // namespace millrace
