#include "base/thread_pool.h"

#include <atomic>
#include <thread>
#include <vector>

namespace millrace {

// Workers spin briefly for the next job (steps follow each other within microseconds), then sleep on
// the futex behind std::atomic::wait. A job is published by bumping `epoch`; indices are claimed from
// `next`; the job is over when every worker has reported in `done`.
struct ThreadPool::State {
  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<int> done{0};
  std::atomic<bool> stop{false};
  int64_t n = 0;
  Task task = nullptr;
  const void* context = nullptr;
  std::vector<std::thread> workers;

  void drain(int worker) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) task(context, i, worker);
  }
};

namespace {
constexpr int kSpins = 2000;  // about 20 us: longer than the gaps inside a step, shorter than a scheduler tick

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads), state_(std::make_unique<State>()) {
  for (int worker = 1; worker < threads_; ++worker) {
    state_->workers.emplace_back([state = state_.get(), worker] {
      uint32_t seen = 0;
      for (;;) {
        for (int spin = 0; spin < kSpins && state->epoch.load(std::memory_order_acquire) == seen; ++spin) pause_cpu();
        state->epoch.wait(seen, std::memory_order_acquire);
        seen = state->epoch.load(std::memory_order_acquire);
        if (state->stop.load(std::memory_order_relaxed)) return;
        state->drain(worker);
        state->done.fetch_add(1, std::memory_order_acq_rel);
        state->done.notify_one();
      }
    });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_relaxed);
  state_->epoch.fetch_add(1, std::memory_order_release);
  state_->epoch.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

void ThreadPool::run(int64_t n, Task task, const void* context) {
  if (threads_ == 1 || n <= 1) {
    for (int64_t i = 0; i < n; ++i) task(context, i, 0);
    return;
  }
  State& s = *state_;
  s.n = n;
  s.task = task;
  s.context = context;
  s.next.store(0, std::memory_order_relaxed);
  s.done.store(0, std::memory_order_relaxed);
  s.epoch.fetch_add(1, std::memory_order_release);
  s.epoch.notify_all();
  s.drain(0);
  for (int spin = 0;; ++spin) {
    int done = s.done.load(std::memory_order_acquire);
    if (done == threads_ - 1) return;
    if (spin < kSpins) pause_cpu();
    else s.done.wait(done, std::memory_order_acquire);
  }
}

}  // namespace millrace
