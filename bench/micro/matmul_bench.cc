// Matmul by format and instruction set, next to the machine's roof measured in the same run: bytes of packed
// weights per second (of_read: fraction of the read bandwidth) and operations, 2 x multiply-adds, per second (of_int8,
// of_f32: fraction of the compute peak). Weights come from memory (matrices are cycled) or from cache.
//
//   bench_matmul_bench --benchmark_filter='q4_0/avx512.*threads:2'
//
// Arguments: tokens / threads / whether the weights come from memory.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/activation.h"
#include "kernels/bandwidth.h"
#include "kernels/kernel_table.h"
#include "kernels/linear.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 8192;
constexpr int64_t kCols = 2048;
constexpr int64_t kColdBytes = 320 << 20;  // ten times the largest cache

// The roof, measured once per number of threads.
struct Roof {
  double read_gb = 0;
  ComputePeaks peaks;  // of all threads
};
const Roof& roof(int threads, Isa isa) {
  static std::map<std::pair<int, uint32_t>, Roof> known;
  Roof& roof = known[{threads, isa.bits()}];
  if (roof.read_gb == 0) {
    ThreadPool pool(threads);
    for (int i = 0; i < 3; ++i) roof.read_gb = std::max(roof.read_gb, measure_read_bandwidth(pool));
    roof.peaks = measure_compute_peaks(pool, isa);
  }
  return roof;
}

void bench_matmul(benchmark::State& state, const Format* format, Isa isa) {
  int64_t tokens = state.range(0);
  ThreadPool pool(static_cast<int>(state.range(1)));
  KernelTable table = make_kernel_table(isa);
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> row(kCols);
  std::vector<uint8_t> stored(static_cast<size_t>(kRows * format->row_bytes(kCols)));
  for (int64_t r = 0; r < kRows; ++r) {
    if (r < 16) {
      for (float& v : row) v = normal(engine);
      format->encode(row.data(), stored.data() + r * format->row_bytes(kCols), kCols);
    } else {
      std::copy_n(stored.data() + r % 16 * format->row_bytes(kCols), format->row_bytes(kCols),
                  stored.data() + r * format->row_bytes(kCols));
    }
  }
  std::vector<Weight> weights;
  int64_t total = 0;
  while (weights.empty() || (state.range(2) != 0 && total < kColdBytes)) {
    Weight& weight = weights.emplace_back();
    weight.name = "bench";
    weight.format = format;
    weight.rows = kRows;
    weight.cols = kCols;
    weight.data = stored.data();
    if (auto packed = pack_weight(weight, table, pool); !packed) {
      state.SkipWithError(packed.error().message.c_str());
      return;
    }
    total += weight.packed.bytes();
  }
  std::vector<float> x(static_cast<size_t>(tokens * kCols));
  for (float& v : x) v = normal(engine);
  std::vector<float> y(static_cast<size_t>(tokens * kRows));
  auto scratch = AlignedBuffer::allocate(tokens * activation_row_bytes(format->activation, kCols), "scratch");
  size_t next = 0;
  for (auto _ : state) {
    const Weight& weight = weights[next++ % weights.size()];
    ActivationRows rows =
        encode_activations(table, pool, format->activation, x.data(), kCols, tokens, kCols, scratch->data());
    linear(pool, weight, rows, y.data(), kRows);
    benchmark::ClobberMemory();
  }
  double iterations = static_cast<double>(state.iterations());
  double gb = 1e-9 * static_cast<double>(weights[0].packed.bytes());
  double gop = 2e-9 * static_cast<double>(kRows * kCols * tokens);
  const Roof& top = roof(pool.threads(), isa);
  bool int8 = is_int8(format->activation);
  double peak = int8 ? top.peaks.int8_gop_per_s : top.peaks.f32_gflop_per_s;
  auto rate = [&](double amount) { return benchmark::Counter(iterations * amount, benchmark::Counter::kIsRate); };
  state.counters["GB/s"] = rate(gb);
  state.counters["of_read"] = rate(gb / top.read_gb);
  state.counters["GOP/s"] = rate(gop);
  if (peak > 0) state.counters[int8 ? "of_int8" : "of_f32"] = rate(gop / peak);
  state.counters["bits"] = 8.0 * static_cast<double>(weights[0].packed.bytes()) / static_cast<double>(kRows * kCols);
}

const bool kRegistered = [] {
  for (const Format* format : formats().members()) {
    for (Isa isa : isa_variants()) {
      std::string name = std::string(format->name) + "/" + isa_name(isa);
      for (int64_t threads : {1, 2}) {
        auto* run = benchmark::RegisterBenchmark(("matmul/" + name).c_str(),
                                                 [=](benchmark::State& state) { bench_matmul(state, format, isa); });
        run->Unit(benchmark::kMillisecond)->ArgNames({"tokens", "threads", "memory"});
        if (threads > 1) run->UseRealTime();  // one thread: CPU time, which is less noisy on a busy machine
        for (int64_t memory : {1, 0}) {
          for (int64_t tokens : {1, 2, 3, 4, 8, 16, 32, 512}) {
            if (isa != Isa::ref || tokens == 1) run->Args({tokens, threads, memory});
          }
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace millrace
