#include "server/telemetry/outbox.h"

#include <algorithm>

#include "base/start_thread.h"

namespace millrace {

Outbox::Outbox(size_t most, size_t batch, std::chrono::milliseconds linger, Send send)
    : most_(most), batch_(std::max<size_t>(1, batch)), linger_(linger), send_(std::move(send)) {}

Outbox::~Outbox() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Outbox::put(std::string text) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_ || !start_locked()) {
      ++dropped_;
      return;
    }
    waiting_.push_back(std::move(text));
    wake = waiting_.size() == 1 || waiting_.size() == batch_;
  }
  if (wake) wake_.notify_one();
}

// Tried with each text until it works.
bool Outbox::start_locked() {
  if (thread_.joinable()) return true;
  auto started = start_thread("log", [this] { loop(); });
  if (started.ok()) thread_ = std::move(*started);
  return started.ok();
}

void Outbox::loop() {
  std::vector<std::string> batch;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
      if (!stop_ && linger_.count() > 0)
        wake_.wait_for(lock, linger_, [&] { return stop_ || waiting_.size() >= batch_; });
      if (waiting_.empty()) return;
      const size_t count = std::min(batch_, waiting_.size());
      batch.assign(std::make_move_iterator(waiting_.begin()),
                   std::make_move_iterator(waiting_.begin() + static_cast<ptrdiff_t>(count)));
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
    }
    send_(batch);
  }
}

}  // namespace millrace
