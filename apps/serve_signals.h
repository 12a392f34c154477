// The signals of a server: SIGTERM and SIGINT end it, SIGHUP has it read its settings again. A thread takes them from
// before the model is loaded, which nothing else can interrupt.
#pragma once

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>

namespace millrace {

class ServeSignals {
 public:
  enum class Signal { none, stop, reload };

  // Blocks them in this thread and in those that are made from now on.
  ServeSignals();
  ~ServeSignals();

  // Until then the first SIGTERM or SIGINT ends the process, and SIGHUP does nothing.
  void serving();
  Signal wait();
  Signal wait(double seconds);  // none: there was none so long

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
