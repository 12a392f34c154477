// Matmul by format and instruction set: bytes of packed weights per second with one token (matrices are cycled so that
// they come from memory, not from cache), and operations (2 x multiply-adds) per second with a batch.
//
//   bench_matmul_bench --benchmark_filter='q4_0/avx512'
//
// Arguments: tokens / threads.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/kernel_table.h"
#include "kernels/linear.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 8192;
constexpr int64_t kCols = 2048;
constexpr int64_t kColdBytes = 160 << 20;  // several times the largest cache

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
  while (weights.empty() || (tokens < 64 && total < kColdBytes)) {
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
  state.counters["GB/s"] = benchmark::Counter(iterations * static_cast<double>(weights[0].packed.bytes()) * 1e-9,
                                              benchmark::Counter::kIsRate);
  state.counters["GOP/s"] =
      benchmark::Counter(iterations * 2e-9 * static_cast<double>(kRows * kCols * tokens), benchmark::Counter::kIsRate);
  state.counters["bits"] = 8.0 * static_cast<double>(weights[0].packed.bytes()) / static_cast<double>(kRows * kCols);
}

void bench_pack(benchmark::State& state, const Format* format, Isa isa) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  KernelTable table = make_kernel_table(isa);
  std::vector<uint8_t> stored(static_cast<size_t>(kRows * format->row_bytes(kCols)));
  for (auto _ : state) {
    Weight weight;
    weight.name = "bench";
    weight.format = format;
    weight.rows = kRows;
    weight.cols = kCols;
    weight.data = stored.data();
    benchmark::DoNotOptimize(pack_weight(weight, table, pool).ok());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(stored.size()));
}

const bool kRegistered = [] {
  for (const Format* format : formats()) {
    for (Isa isa : {Isa::ref, Isa::avx2, Isa::avx512}) {
      if (isa > detect_isa()) continue;
      std::string name = std::string(format->name) + "/" + std::string(isa_name(isa));
      for (int64_t threads : {1, 2}) {
        auto* run = benchmark::RegisterBenchmark(("matmul/" + name).c_str(),
                                                 [=](benchmark::State& state) { bench_matmul(state, format, isa); });
        run->Unit(benchmark::kMillisecond)->ArgNames({"tokens", "threads"});
        if (threads > 1) run->UseRealTime();  // one thread: processor time, which a busy machine disturbs less
        for (int64_t tokens : {1, 4, 8, 16, 512}) {
          if (isa != Isa::ref || tokens == 1) run->Args({tokens, threads});
        }
      }
      benchmark::RegisterBenchmark(("pack/" + name).c_str(),
                                   [=](benchmark::State& state) { bench_pack(state, format, isa); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime()
          ->ArgName("threads")
          ->Arg(1);
    }
  }
  return true;
}();

}  // namespace
}  // namespace millrace
