#include "server/models/model_pulls.h"

#include <fmt/format.h>

namespace millrace {

constexpr size_t kMostPulls = 4;

Result<void> ModelPulls::start(Work work) {
  std::lock_guard lock(mutex_);
  if (stop_) return Error::cancelled("the server is shutting down");
  std::erase_if(running_, [](Running& one) {
    if (one.over) one.thread.join();
    return one.over.load();
  });
  if (running_.size() >= kMostPulls)
    return Error::resource(fmt::format("pull: {} downloads are running; try again later", running_.size()));
  Running& running = running_.emplace_back();
  running.thread = std::thread([this, &running, work = std::move(work)]() mutable {
    work.options.cancelled = [this, gone = work.gone] { return stop_ || *gone; };
    work.done(pull_model(work.name, work.options));
    running.over = true;
  });
  return {};
}

void ModelPulls::stop() {
  stop_ = true;
  std::lock_guard lock(mutex_);
  for (Running& one : running_) one.thread.join();
  running_.clear();
}

}  // namespace millrace
