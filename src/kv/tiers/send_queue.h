// SendQueue: bytes that wait for a socket that does not block, and the wait for the socket. The links to Redis and to
// other nodes have one each. Used by one thread.
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

class SendQueue {
 public:
  // The caller appends bytes to send here. Valid until the next call.
  std::string& tail();
  int64_t unsent_bytes() const { return static_cast<int64_t>(bytes_.size() - sent_); }
  void clear();

  enum class Ready : uint8_t { no, receives, lost };
  // Waits up to `seconds` until the socket or the file `wake` (-1: none) is ready, then sends what the socket takes.
  // Returns whether the socket has something to receive, or whether the connection is lost.
  Ready move(int socket, int wake, double seconds);

 private:
  bool send(int socket);  // false: the connection is lost

  std::string bytes_;
  size_t sent_ = 0;  // bytes at the beginning of bytes_ that are sent
};

}  // namespace millrace
