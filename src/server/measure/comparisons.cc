#include "server/measure/comparisons.h"

#include "base/start_thread.h"

namespace millrace {

Result<void> Comparisons::start(std::shared_ptr<std::atomic<bool>> gone, std::function<void(const Wanted&)> work) {
  std::lock_guard lock(mutex_);
  if (stop_) return Error::cancelled("the server is shutting down");
  if (running_) return Error::resource("compare: another comparison is running; wait for its end, or cancel it");
  if (thread_.joinable()) thread_.join();
  running_ = true;
  auto started = start_thread("comparison", [this, gone = std::move(gone), work = std::move(work)] {
    work([&] { return !stop_ && !*gone; });
    running_ = false;
  });
  if (!started.ok()) {
    running_ = false;
    return started.error();
  }
  thread_ = std::move(*started);
  return {};
}

void Comparisons::stop() {
  cancel();
  std::lock_guard lock(mutex_);
  if (thread_.joinable()) thread_.join();
}

}  // namespace millrace
