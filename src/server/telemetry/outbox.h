// Outbox: a bounded queue of texts for a slow destination (a log, a collector). put() never blocks: when the queue is
// full, or the system starts no thread, the text is dropped and counted. A background thread, started by the first
// text, sends the texts in order and in batches.
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
  // Sends at most `batch` texts at a time, as soon as `batch` are queued or `linger` after the first one.
  using Send = std::function<void(const std::vector<std::string>&)>;
  Outbox(size_t most, size_t batch, std::chrono::milliseconds linger, Send send);
  ~Outbox();  // sends everything queued first

  void put(std::string text);
  int64_t dropped() const { return dropped_; }

 private:
  bool start_locked();
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
