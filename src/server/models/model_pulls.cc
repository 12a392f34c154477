#include "server/models/model_pulls.h"

#include <fmt/format.h>

#include <memory>

#include "base/start_thread.h"

namespace millrace {

constexpr size_t kMaxPulls = 4;

Result<void> ModelPulls::start(Work work) {
  std::lock_guard lock(mutex_);
  if (stop_) return Error::cancelled("the server is shutting down");
  std::erase_if(running_, [](Running& one) {
    if (one.over) one.thread.join();
    return one.over.load();
  });
  if (running_.size() >= kMaxPulls)
    return Error::resource(fmt::format("pull: {} downloads are running; try again later", running_.size()));
  Running& running = running_.emplace_back();
  const auto shared = std::make_shared<Work>(std::move(work));
  auto started = start_thread("download", [this, &running, shared] {
    shared->options.cancelled = [this, gone = shared->gone] { return stop_ || *gone; };
    auto pulled = [&]() -> Result<PulledModel> {
      try {
        return pull_model(shared->name, shared->options);
      } catch (const std::exception& error) {
        return Error::resource(fmt::format("download: {}", error.what()));
      }
    }();
    shared->done(std::move(pulled));
    running.over = true;
  });
  if (!started.ok()) {
    running_.pop_back();
    return started.error();
  }
  running.thread = std::move(*started);
  return {};
}

void ModelPulls::stop() {
  stop_ = true;
  std::lock_guard lock(mutex_);
  for (Running& one : running_) one.thread.join();
  running_.clear();
}

}  // namespace millrace
