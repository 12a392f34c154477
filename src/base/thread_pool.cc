#include "base/thread_pool.h"

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace millrace {

// A job is over when all its indices are done, not when all workers have seen it: a worker that is late (asleep, or
// preempted on a busy machine) holds nobody up, and finds its job gone.
//
// `ticket` is (epoch << 32 | next index). An index is claimed by advancing it with compare-and-swap, so a late worker
// cannot claim from a job that has been replaced. run() first closes the old ticket, then writes the job, then opens the
// new ticket: whoever claims index i of an epoch reads that epoch's job, because it cannot end before i is done.
struct ThreadPool::State {
  alignas(64) std::atomic<uint64_t> ticket{kClosed};
  alignas(64) std::atomic<uint32_t> epoch{0};  // what sleeping workers wait on
  alignas(64) std::atomic<uint32_t> finished{0};
  alignas(64) std::atomic<uint32_t> n{0};
  std::atomic<Task> task{nullptr};
  std::atomic<const void*> context{nullptr};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  static constexpr uint64_t kClosed = 0xffffffffu;

  // Works until no index is left; returns how many it did.
  uint32_t drain(int worker) {
    uint32_t did = 0;
    uint64_t seen = ticket.load(std::memory_order_acquire);
    for (;;) {
      const uint32_t index = static_cast<uint32_t>(seen);
      if (index >= n.load(std::memory_order_acquire)) return did;
      if (!ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      task.load(std::memory_order_relaxed)(context.load(std::memory_order_relaxed), index, worker);
      ++did;
      if (worker != 0) {
        finished.fetch_add(1, std::memory_order_acq_rel);
        finished.notify_one();
      }
      seen = ticket.load(std::memory_order_acquire);
    }
  }

  void work(int worker);  // a worker's life
};

namespace {
constexpr int kSpins = 2000;  // some 20 us: longer than the gaps inside a step, shorter than a scheduler tick

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

void ThreadPool::State::work(int worker) {
  uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && epoch.load(std::memory_order_acquire) == seen; ++spin) pause_cpu();
    epoch.wait(seen, std::memory_order_acquire);
    seen = epoch.load(std::memory_order_acquire);
    if (stop.load(std::memory_order_relaxed)) return;
    drain(worker);
  }
}

ThreadPool::ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads), state_(std::make_unique<State>()) {
  state_->workers.reserve(static_cast<size_t>(threads_ - 1));
  for (int worker = 1; worker < threads_; ++worker) {
    try {
      state_->workers.emplace_back([state = state_.get(), worker] { state->work(worker); });
    } catch (const std::system_error&) {  // the machine grants no more threads; fewer give the same results
      threads_ = worker;
      return;
    }
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_relaxed);
  state_->epoch.fetch_add(1, std::memory_order_release);
  state_->epoch.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

void ThreadPool::run(int64_t n, Task task, const void* context) {
  constexpr int64_t kMost = 1 << 30;  // indices of one job
  if (threads_ == 1 || n <= 1 || n > kMost) {
    for (int64_t i = 0; i < n; ++i) task(context, i, 0);
    return;
  }
  State& s = *state_;
  const uint64_t epoch = static_cast<uint64_t>(s.epoch.load(std::memory_order_relaxed) + 1) << 32;
  s.ticket.store(epoch | State::kClosed, std::memory_order_release);
  s.n.store(static_cast<uint32_t>(n), std::memory_order_release);
  s.task.store(task, std::memory_order_relaxed);
  s.context.store(context, std::memory_order_relaxed);
  s.finished.store(0, std::memory_order_relaxed);
  s.ticket.store(epoch, std::memory_order_release);
  s.epoch.store(static_cast<uint32_t>(epoch >> 32), std::memory_order_release);
  s.epoch.notify_all();
  const uint32_t others = static_cast<uint32_t>(n) - s.drain(0);
  for (int spin = 0;; ++spin) {
    const uint32_t finished = s.finished.load(std::memory_order_acquire);
    if (finished == others) return;
    if (spin < kSpins) pause_cpu();
    else s.finished.wait(finished, std::memory_order_acquire);
  }
}

}  // namespace millrace
