#include "kv/tiers/dial.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "base/system.h"

namespace millrace {
namespace {

// -1: no connection to this address within the time.
int connect_to(const addrinfo& address, double seconds) {
  const int made = open_socket(address.ai_family, address.ai_socktype, address.ai_protocol);
  if (made < 0) return -1;
  bool connected = ::connect(made, address.ai_addr, address.ai_addrlen) == 0;
  if (!connected && errno == EINPROGRESS) {
    pollfd ready{made, POLLOUT, 0};
    int error = 0;
    socklen_t bytes = sizeof error;
    connected = ::poll(&ready, 1, static_cast<int>(std::ceil(std::clamp(seconds, 0.0, 1e6) * 1e3))) == 1 &&
                ::getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0;
  }
  if (!connected) {
    ::close(made);
    return -1;
  }
  const int on = 1;
  ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return made;
}

}  // namespace

int dial(const std::string& host, int port, double seconds) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return -1;
  int socket = -1;
  for (const addrinfo* one = found; one && socket < 0; one = one->ai_next) socket = connect_to(*one, seconds);
  ::freeaddrinfo(found);
  return socket;
}

}  // namespace millrace
