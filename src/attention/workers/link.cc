#include "attention/workers/link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/network_error.h"
#include "base/system.h"

namespace millrace {
namespace {

Error gone(const char* why) { return network_error(fmt::format("attention worker: {}", why)); }

}  // namespace

WorkerLink::WorkerLink(int socket, double timeout_seconds) : socket_(socket), timeout_seconds_(timeout_seconds) {
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // fails on a Unix socket, which needs none
}

WorkerLink::~WorkerLink() { close(socket_); }

Result<int> WorkerLink::connect(const std::string& host, double timeout_seconds) {
  const size_t colon = host.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == host.size())
    return Error::user(fmt::format("attention worker: must be HOST:PORT, got '{}'", host));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.substr(0, colon).c_str(), host.substr(colon + 1).c_str(), &hints, &found);
  if (failed != 0) return network_error(fmt::format("attention worker {}: {}", host, gai_strerror(failed)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  const int milliseconds = static_cast<int>(std::clamp(timeout_seconds * 1000, 1.0, 1e9));
  for (const addrinfo* at = found; at; at = at->ai_next) {
    const int socket = open_socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (socket < 0) continue;
    int error = ::connect(socket, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd waits{socket, POLLOUT, 0};
      socklen_t size = sizeof(error);
      if (poll(&waits, 1, milliseconds) != 1 || getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = ETIMEDOUT;
    }
    if (error == 0) return socket;
    close(socket);
  }
  return network_error(fmt::format(
      "attention worker {}: no connection; start one there with millrace attention-worker --listen {}", host, host));
}

WorkerLink::Clock::time_point WorkerLink::deadline() const {
  if (timeout_seconds_ <= 0) return Clock::time_point::max();
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_seconds_));
}

Result<void> WorkerLink::wait(short events, Clock::time_point until) const {
  for (;;) {
    int milliseconds = -1;
    if (until != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return gone("no answer in time");
      milliseconds = static_cast<int>(std::min<int64_t>(left, INT32_MAX));
    }
    pollfd one{socket_, events, 0};
    const int ready = poll(&one, 1, milliseconds);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return gone(std::strerror(errno));
  }
}

Result<void> WorkerLink::send_bytes(const void* from, size_t bytes, Clock::time_point until) {
  const auto* at = static_cast<const uint8_t*>(from);
  while (bytes > 0) {
    const ssize_t sent = send_quietly(socket_, at, bytes);
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      MILLRACE_TRY_VOID(wait(POLLOUT, until));
    } else if (errno != EINTR) {
      return gone("the connection is lost");
    }
  }
  return {};
}

Result<void> WorkerLink::send(FrameHeader header, std::span<const int64_t> words, std::span<const float> floats) {
  header.words = words.size();
  const Clock::time_point until = deadline();
  MILLRACE_TRY_VOID(send_bytes(&header, sizeof(header), until));
  MILLRACE_TRY_VOID(send_bytes(words.data(), words.size_bytes(), until));
  return send_bytes(floats.data(), floats.size_bytes(), until);
}

Result<FrameHeader> WorkerLink::receive_header() {
  FrameHeader header;
  MILLRACE_TRY_VOID(receive(&header, sizeof(header)));
  if (!header.valid()) return Error::corrupt("attention worker: not a frame of this version of millrace");
  return header;
}

Result<void> WorkerLink::receive(void* to, size_t bytes) {
  auto* at = static_cast<uint8_t*>(to);
  const Clock::time_point until = deadline();
  while (bytes > 0) {
    const ssize_t got = recv(socket_, at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    } else if (got == 0) {
      return gone("the connection has ended");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      MILLRACE_TRY_VOID(wait(POLLIN, until));
    } else if (errno != EINTR) {
      return gone("the connection is lost");
    }
  }
  return {};
}

bool WorkerLink::closed() const {
  char one = 0;
  const ssize_t got = recv(socket_, &one, 1, MSG_PEEK);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void WorkerLink::shut() const { shutdown(socket_, SHUT_RDWR); }

}  // namespace millrace
