// Comparisons that clients asked for, one at a time, on a thread of their own: a second one would disturb the first
// one's figures. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/result.h"

namespace millrace {

class Comparisons {
 public:
  using Wanted = std::function<bool()>;  // false: stop

  ~Comparisons() { stop(); }

  // Runs `work` on the thread; it must return soon after `wanted` returns false. `gone`: becomes true when the client
  // disconnects. Errors: resource (another one runs), cancelled (stopped).
  Result<void> start(std::shared_ptr<std::atomic<bool>> gone, std::function<void(const Wanted&)> work);
  // Ends the comparison soon, and starts no other one. Does not wait.
  void cancel() { stop_ = true; }
  // cancel(), and waits for the thread.
  void stop();

 private:
  std::mutex mutex_;  // guards thread_
  std::thread thread_;
  std::atomic<bool> running_{false}, stop_{false};
};

}  // namespace millrace
