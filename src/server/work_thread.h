// WorkThread: a thread that does what it is given, one after the other, with so much waiting at most. What waits when it
// goes is dropped. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace millrace {

class WorkThread {
 public:
  explicit WorkThread(size_t most_waiting) : most_waiting_(most_waiting), thread_([this] { loop(); }) {}
  ~WorkThread() { stop(); }

  // False: too much waits already, or it has stopped.
  bool add(std::function<void()> work);
  // Ends after the work under way. Not from the thread itself.
  void stop();

 private:
  void loop();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace millrace
