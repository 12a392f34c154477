#include "compare/engines/http_call.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/system.h"

namespace millrace {
namespace {

constexpr size_t kMaxReply = size_t{64} << 20;
constexpr int kHttpAskMs = 100;

class LocalSocket {
 public:
  LocalSocket() : fd_(open_socket(AF_INET, SOCK_STREAM, 0)) {}
  ~LocalSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  LocalSocket(const LocalSocket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

sockaddr_in local_address(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// How long a call may take.
class CallLimit {
 public:
  CallLimit(const std::function<bool()>& wanted, std::chrono::seconds limit)
      : wanted_(wanted), limit_(limit), until_(std::chrono::steady_clock::now() + limit) {}

  // Until the socket is ready for these events of poll(). Errors: cancelled, user (too long).
  Result<void> wait(int fd, short events) const {
    for (;;) {
      if (!wanted_()) return Error::cancelled("interrupted");
      pollfd one{fd, events, 0};
      if (::poll(&one, 1, kHttpAskMs) > 0) return {};
      if (std::chrono::steady_clock::now() > until_)
        return Error::user(fmt::format("the server has not answered within {} s", limit_.count()));
    }
  }

 private:
  const std::function<bool()>& wanted_;
  std::chrono::seconds limit_;
  std::chrono::steady_clock::time_point until_;
};

bool try_again() { return errno == EINTR || errno == EAGAIN; }

Result<void> connect_to(int fd, int port, const CallLimit& limit) {
  const sockaddr_in address = local_address(port);
  int failed = fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ? errno : 0;
  if (failed == EINPROGRESS) {
    MILLRACE_TRY_VOID(limit.wait(fd, POLLOUT));
    socklen_t size = sizeof(failed);
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) != 0) failed = errno;
  }
  if (failed) return Error::user(fmt::format("no connection to port {}: {}", port, std::strerror(failed)));
  return {};
}

Result<void> send_all(int fd, const std::string& text, const CallLimit& limit) {
  for (size_t done = 0; done < text.size();) {
    MILLRACE_TRY_VOID(limit.wait(fd, POLLOUT));
    const ssize_t n = send_quietly(fd, text.data() + done, text.size() - done);
    if (n < 0 && try_again()) continue;
    if (n <= 0) return Error::user(fmt::format("the server took no request: {}", std::strerror(errno)));
    done += static_cast<size_t>(n);
  }
  return {};
}

Result<std::string> receive_all(int fd, const CallLimit& limit) {
  std::string text;
  std::array<char, 65536> chunk;
  while (text.size() < kMaxReply) {
    MILLRACE_TRY_VOID(limit.wait(fd, POLLIN));
    const ssize_t n = ::recv(fd, chunk.data(), chunk.size(), 0);
    if (n < 0 && try_again()) continue;
    if (n < 0) return Error::user(fmt::format("the server broke off: {}", std::strerror(errno)));
    if (n == 0) return text;
    text.append(chunk.data(), static_cast<size_t>(n));
  }
  return Error::corrupt("the server's answer has more than 64 MB");
}

}  // namespace

Result<LocalReply> local_http_call(int port, const std::string& path, const std::string& body,
                                   const std::function<bool()>& wanted, std::chrono::seconds limit) {
  const LocalSocket socket;
  const CallLimit within(wanted, limit);
  MILLRACE_TRY_VOID(connect_to(socket.fd(), port, within));
  MILLRACE_TRY_VOID(send_all(socket.fd(),
                             fmt::format("{} {} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                                         "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                                         body.empty() ? "GET" : "POST", path, body.size(), body),
                             within));
  MILLRACE_TRY(const std::string text, receive_all(socket.fd(), within));
  LocalReply reply;
  const size_t space = text.find(' '), end = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.") || space == std::string::npos || end == std::string::npos || space > end)
    return Error::corrupt("the server's answer is not HTTP");
  std::from_chars(text.data() + space + 1, text.data() + end, reply.status);
  reply.body = text.substr(end + 4);
  return reply;
}

Result<int> free_local_port() {
  const LocalSocket socket;
  sockaddr_in address = local_address(0);
  socklen_t size = sizeof(address);
  if (socket.fd() < 0 || ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return Error::resource(fmt::format("no free port: {}", std::strerror(errno)));
  return ntohs(address.sin_port);
}

}  // namespace millrace
