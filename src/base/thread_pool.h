// A persistent pool for fork-join loops inside one engine step. Results never depend on the number of
// threads: callers cut work at boundaries fixed by the data's shape, and the pool only decides
// which thread does which piece.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>

namespace millrace {

class ThreadPool {
 public:
  // `threads` includes the caller: ThreadPool(1) runs everything inline. If the system cannot create that many,
  // threads() returns the actual number.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Threads that share a pool use it in turns, given in order of arrival: each holds one for the loops of a step. A
  // lone user needs none. A thread must not take a second turn within its first.
  class Turn {
   public:
    explicit Turn(ThreadPool& pool) : pool_(pool) {
      assert(held_ != &pool);  // it would wait for itself
      const uint32_t own = pool.arrived_.fetch_add(1, std::memory_order_relaxed);
      for (uint32_t now; (now = pool.turn_.load(std::memory_order_acquire)) != own;)
        pool.turn_.wait(now, std::memory_order_acquire);
#ifndef NDEBUG
      held_ = &pool;
#endif
    }
    ~Turn() {
#ifndef NDEBUG
      held_ = outer_;
#endif
      pool_.turn_.fetch_add(1, std::memory_order_release);
      pool_.turn_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    ThreadPool& pool_;
#ifndef NDEBUG
    static inline thread_local const ThreadPool* held_ = nullptr;  // pool of this thread's innermost turn
    const ThreadPool* const outer_ = held_;
#endif
  };
  // Turns that are held or waited for.
  uint32_t turns() const {
    const uint32_t ended = turn_.load(std::memory_order_acquire);  // first, so that it is not ahead of `arrived_`
    return arrived_.load(std::memory_order_relaxed) - ended;
  }

  // Calls body(i, worker) for every i in [0, n), each exactly once, on any worker in [0, threads()),
  // and returns when all are done. Not re-entrant. body must not throw. Allocates nothing.
  template <typename Body>
  void parallel_for(int64_t n, const Body& body) {
    auto task = [](const void* context, int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) (*static_cast<const Body*>(context))(i, worker);
    };
    run(n, {1, 1}, task, &body);
  }

  // Least and most indices per call of the body.
  struct Claims {
    int64_t least = 1;
    int64_t most = 1;
  };

  // Calls body(begin, end, worker) for ranges that cover [0, n) exactly once: long ranges first and shorter ones
  // towards the end, so that there are few calls and the threads still finish together (guided self-scheduling,
  // Polychronopoulos and Kuck, 1987). The assignment of ranges to threads varies from call to call.
  template <typename Body>
  void parallel_ranges(int64_t n, const Claims& claims, const Body& body) {
    auto task = [](const void* context, int64_t begin, int64_t end, int worker) {
      (*static_cast<const Body*>(context))(begin, end, worker);
    };
    run(n, claims, task, &body);
  }

 private:
  using Task = void (*)(const void* context, int64_t begin, int64_t end, int worker);
  struct State;
  void run(int64_t n, const Claims& claims, Task task, const void* context);

  int threads_;
  std::unique_ptr<State> state_;
  std::atomic<uint32_t> arrived_{0};  // turns that were asked for ...
  std::atomic<uint32_t> turn_{0};     // ... and that ended
};

}  // namespace millrace
