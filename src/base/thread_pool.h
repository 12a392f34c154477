// A persistent pool for fork-join loops inside one engine step. Results never depend on the number of
// threads: callers cut work at boundaries fixed by the data's shape, and the pool only decides
// which thread does which piece.
#pragma once

#include <cstdint>
#include <memory>

namespace millrace {

class ThreadPool {
 public:
  // `threads` includes the caller: ThreadPool(1) runs everything inline. If the system cannot create so many, threads()
  // returns the actual number.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

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
};

}  // namespace millrace
