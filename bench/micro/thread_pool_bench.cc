// The cost of a fork-join: an empty job after some of the caller's own work (workers spin for a while, then sleep: the
// longer gaps show the cost of waking them), and a job split into tasks as a matmul splits it.
//
//   bench_thread_pool_bench --benchmark_filter=empty
//
// Arguments: tasks / threads / nanoseconds of the caller's own work before each job.
#include <benchmark/benchmark.h>

#include <chrono>

#include "base/thread_pool.h"

namespace millrace {
namespace {

void work_for(int64_t ns) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
  while (std::chrono::steady_clock::now() < end) {
  }
}

// Times the job only, without the caller's own work.
void empty_job(benchmark::State& state) {
  const int64_t tasks = state.range(0);
  ThreadPool pool(static_cast<int>(state.range(1)));
  for (auto _ : state) {
    work_for(state.range(2));
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(tasks, [](int64_t i, int) { benchmark::DoNotOptimize(i); });
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}
BENCHMARK(empty_job)
    ->ArgNames({"tasks", "threads", "gap_ns"})
    ->UseManualTime()
    ->Args({2, 2, 0})
    ->Args({2, 2, 1000})
    ->Args({2, 2, 10000})
    ->Args({2, 2, 100000})
    ->Args({2, 2, 1000000})
    ->Args({16, 2, 1000})
    ->Args({512, 2, 1000})
    ->Args({16, 4, 1000});

// Tasks of `ns` each, so that all threads take part: shows the loss against a perfect split.
void busy_job(benchmark::State& state) {
  const int64_t tasks = state.range(0);
  const int64_t ns = state.range(2);
  const int threads = static_cast<int>(state.range(1));
  ThreadPool pool(threads);
  for (auto _ : state) pool.parallel_for(tasks, [&](int64_t, int) { work_for(ns); });
  const double ideal = static_cast<double>(tasks * ns) / threads;
  state.counters["ideal_ns"] = ideal;
}
BENCHMARK(busy_job)
    ->ArgNames({"tasks", "threads", "task_ns"})
    ->UseRealTime()
    ->Args({2, 2, 1000})
    ->Args({2, 2, 5000})
    ->Args({16, 2, 500})
    ->Args({16, 2, 5000});

}  // namespace
}  // namespace millrace
