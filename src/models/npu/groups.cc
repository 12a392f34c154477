#include "models/npu/groups.h"

#include "base/start_thread.h"

namespace millrace {

Result<std::unique_ptr<NpuGroups>> NpuGroups::create(int device_threads) {
  auto made = std::unique_ptr<NpuGroups>(new NpuGroups(device_threads));
  NpuGroups* const own = made.get();
  MILLRACE_TRY(made->thread_, start_thread("NPU", [own] { own->serve(); }));
  return made;
}

NpuGroups::~NpuGroups() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// Runs the subgraphs of one processor until all of them are taken.
void NpuGroups::drain(bool on_npu, std::unique_lock<std::mutex>& lock) {
  while (!queue_->empty(on_npu)) {
    const int32_t subgraph = queue_->take(on_npu);
    if (subgraph < 0) {
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    (*body_)(subgraph);
    lock.lock();
    queue_->finish(subgraph);
    changed_.notify_all();
  }
}

void NpuGroups::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || device_runs_; });
    if (stop_) return;
    drain(true, lock);
    device_runs_ = false;
    changed_.notify_all();
  }
}

void NpuGroups::run(std::span<const NpuSubgraph> subgraphs, NpuOrder order, const std::function<void(int32_t)>& body) {
  SubgraphQueue queue(subgraphs, order);
  std::unique_lock lock(mutex_);
  queue_ = &queue;
  body_ = &body;
  device_runs_ = true;
  changed_.notify_all();
  drain(false, lock);
  changed_.wait(lock, [&] { return !device_runs_; });
  queue_ = nullptr;
  body_ = nullptr;
}

}  // namespace millrace
