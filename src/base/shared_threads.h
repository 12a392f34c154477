// SharedThreads: the thread pools of one model, for its engines, scorers and embedders, and for an engine's draft
// model. Users that ask for the same number of threads share a pool and use it in turns (ThreadPool::Turn). A pool is
// destroyed with its last user. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/cpu.h"
#include "base/thread_pool.h"

namespace millrace {

class SharedThreads {
 public:
  // Returns the pool of this many threads; creates it if needed. `threads`: 0 for every available core.
  std::shared_ptr<ThreadPool> get(int threads) {
    if (threads <= 0) threads = available_cores();
    std::lock_guard lock(mutex_);
    std::weak_ptr<ThreadPool>& known = pools_[threads];
    auto pool = known.lock();
    if (!pool) known = pool = std::make_shared<ThreadPool>(threads);
    return pool;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::weak_ptr<ThreadPool>> pools_;  // by the requested number of threads
};

}  // namespace millrace
