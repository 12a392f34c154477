// A persistent pool for fork-join loops inside one engine step. Results never depend on the number of threads, because
// callers split work at boundaries fixed by the data's shape; the pool only decides which thread runs which piece.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>

namespace millrace {

class ThreadPool {
 public:
  // `threads` includes the calling thread: ThreadPool(1) runs everything inline. If the system refuses to create some
  // threads, threads() returns the actual number.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // A turn is the exclusive right to use the pool, granted in order of arrival. If several threads share a pool, each
  // holds a turn for the loops of one step; a single user needs no turns. A thread that holds a turn must not request
  // another one.
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
  // Returns the number of turns that are held or waited for.
  uint32_t turns() const {
    const uint32_t ended = turn_.load(std::memory_order_acquire);  // first, so that it is not ahead of `arrived_`
    return arrived_.load(std::memory_order_relaxed) - ended;
  }

  // Calls body(i, worker) exactly once for every i in [0, n), on any worker in [0, threads()), and returns when all
  // calls have returned. Not re-entrant. `body` must not throw. Allocates nothing.
  template <typename Body>
  void parallel_for(int64_t n, const Body& body) {
    auto task = [](const void* context, int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) (*static_cast<const Body*>(context))(i, worker);
    };
    run(n, {1, 1}, task, &body);
  }

  // Minimum and maximum number of indices per call of the body.
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
  std::atomic<uint32_t> arrived_{0};  // number of requested turns
  std::atomic<uint32_t> turn_{0};     // number of ended turns
};

}  // namespace millrace
