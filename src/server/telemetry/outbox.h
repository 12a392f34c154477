// Outbox: texts on their way to somewhere slow (a log, a collector). put() never waits: beyond a bound a text is
// dropped and counted. One thread of its own hands over what has come, in order and in batches.
//
//   any thread  put() -> [ queue, at most `most` ] -> the thread  send(batch)
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace millrace {

class Outbox {
 public:
  // Sends a batch of at most `batch` texts as soon as so many wait, or `linger` after the first of them came.
  using Send = std::function<void(const std::vector<std::string>&)>;
  Outbox(size_t most, size_t batch, std::chrono::milliseconds linger, Send send);
  ~Outbox();  // what waits is sent first

  void put(std::string text);
  int64_t dropped() const { return dropped_; }

 private:
  void loop();

  const size_t most_, batch_;
  const std::chrono::milliseconds linger_;
  const Send send_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> waiting_;
  bool stop_ = false;
  std::atomic<int64_t> dropped_{0};
  std::thread thread_;
};

}  // namespace millrace
