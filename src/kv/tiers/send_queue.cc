#include "kv/tiers/send_queue.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "base/system.h"

namespace millrace {

std::string& SendQueue::tail() {
  if (sent_ > 0) bytes_.erase(0, std::exchange(sent_, 0));
  return bytes_;
}

void SendQueue::clear() {
  bytes_.clear();
  sent_ = 0;
}

SendQueue::Ready SendQueue::move(int socket, int wake, double seconds) {
  pollfd ready[2] = {{socket, static_cast<short>(POLLIN | (unsent_bytes() > 0 ? POLLOUT : 0)), 0}, {wake, POLLIN, 0}};
  const int wait = static_cast<int>(std::ceil(std::clamp(seconds, 0.0, 1e6) * 1e3));
  if (::poll(ready, wake >= 0 ? 2 : 1, wait) <= 0) return Ready::no;
  if ((ready[0].revents & POLLOUT) && !send(socket)) return Ready::lost;
  return ready[0].revents & (POLLIN | POLLHUP | POLLERR) ? Ready::receives : Ready::no;
}

bool SendQueue::send(int socket) {
  while (unsent_bytes() > 0) {
    const ssize_t written = send_quietly(socket, bytes_.data() + sent_, bytes_.size() - sent_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (written <= 0) return false;
    sent_ += static_cast<size_t>(written);
  }
  clear();
  return true;
}

}  // namespace millrace
