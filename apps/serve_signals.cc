#include "serve_signals.h"

#include <pthread.h>

#include <chrono>
#include <cstdlib>

#include "base/start_thread.h"
#include "base/system.h"

namespace millrace {
namespace {

// How long running work may take after the second signal (an engine step, a handler, writes to disk) before the process
// exits immediately.
constexpr timespec kSignalWait = {2, 0};

}  // namespace

ServeSignals::ServeSignals() {
  sigemptyset(&set_);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, signal);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

Result<void> ServeSignals::start() {
  MILLRACE_TRY(thread_, start_thread("signals", [this] { run(); }));
  return {};
}

ServeSignals::~ServeSignals() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGHUP);
  thread_.join();
}

void ServeSignals::run() {
  for (;;) {
    bool patient;
    {
      std::lock_guard lock(mutex_);
      patient = stops_ < 2;
    }
    int signal = -1;
    if (!patient)
      signal = wait_signal(set_, kSignalWait);
    else if (sigwait(&set_, &signal) != 0)
      continue;
    std::lock_guard lock(mutex_);
    if (ending_) return;
    if (!patient && signal != SIGHUP) std::_Exit(0);
    take(signal);
  }
}

void ServeSignals::take(int signal) {
  if (signal == SIGHUP) {
    if (serving_) signals_.push_back(Signal::reload);
  } else {
    if (!serving_) std::_Exit(0);
    ++stops_;
    signals_.push_back(Signal::stop);
  }
  came_.notify_all();
}

void ServeSignals::serving() {
  std::lock_guard lock(mutex_);
  serving_ = true;
}

ServeSignals::Signal ServeSignals::wait() {
  for (;;)
    if (const Signal signal = wait(3600); signal != Signal::none) return signal;
}

ServeSignals::Signal ServeSignals::wait(double seconds) {
  std::unique_lock lock(mutex_);
  if (!came_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !signals_.empty(); }))
    return Signal::none;
  const Signal signal = signals_.front();
  signals_.pop_front();
  return signal;
}

}  // namespace millrace
