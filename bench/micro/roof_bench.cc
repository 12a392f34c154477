// The measured roof, as `millrace run` and `millrace bench` report it: memory reads and multiply-adds.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "kernels/bandwidth.h"

namespace millrace {
namespace {

void read_bandwidth(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  double best = 0;
  for (auto _ : state) best = std::max(best, measure_read_bandwidth(pool));
  state.counters["GB/s"] = best;
}

void cache_bandwidth(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const int64_t bytes = state.range(1) == 2 ? l2_buffer_bytes() : l3_buffer_bytes();
  double best = 0;
  for (auto _ : state) best = std::max(best, measure_cache_bandwidth(pool, bytes));
  state.counters["GB/s"] = best;
}

void compute_peaks(benchmark::State& state) {
  ThreadPool pool(1);
  ComputePeaks peaks;
  for (auto _ : state) peaks = measure_compute_peaks(pool, Isa(static_cast<uint32_t>(state.range(0))));
  state.counters["GFLOP/s"] = peaks.f32_gflop_per_s;
  state.counters["bf16 GFLOP/s"] = peaks.bf16_gflop_per_s;
  state.counters["int8 GOP/s"] = peaks.int8_gop_per_s;
}

BENCHMARK(read_bandwidth)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->Iterations(3);
BENCHMARK(cache_bandwidth)->ArgsProduct({{1, 2}, {2, 3}})->Unit(benchmark::kMillisecond)->Iterations(3);
BENCHMARK(compute_peaks)->Arg(0)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace millrace
