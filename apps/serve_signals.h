// Handles a server's signals: SIGTERM and SIGINT stop it, SIGHUP reloads its settings. A thread receives them from
// before the model is loaded, because loading cannot be interrupted otherwise.
#pragma once

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>

#include "base/result.h"

namespace millrace {

class ServeSignals {
 public:
  enum class Signal { none, stop, reload };

  // Blocks the signals in this thread and in threads created later.
  ServeSignals();
  // Call once. Errors: resource (the system starts no thread).
  Result<void> start();
  ~ServeSignals();

  // Before this call, the first SIGTERM or SIGINT ends the process, and SIGHUP does nothing.
  void serving();
  Signal wait();
  Signal wait(double seconds);  // none: timeout

 private:
  void run();
  void take(int signal);

  sigset_t set_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Signal> signals_;
  bool serving_ = false, ending_ = false;
  int stops_ = 0;
  std::thread thread_;
};

}  // namespace millrace
