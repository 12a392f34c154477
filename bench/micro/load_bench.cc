// Loading: packing alone, by format and instruction set (from memory into allocated memory), and whole models from
// their files (page cache warm). Bytes are those of the file.
//
//   bench_load_bench --benchmark_filter='pack/q4_0'
//   MILLRACE_BENCH_MODELS=a.gguf:b.gguf bench_load_bench --benchmark_filter=load
//
// Argument: threads. `load` also reports peak_MB, the peak memory of the process (load one model per run to attribute
// it), and packed_MB, the size of the packed weights.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernels/linear.h"
#include "millrace/model.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 8192;
constexpr int64_t kCols = 4096;

void bench_pack(benchmark::State& state, const Format* format, Isa isa) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const KernelTable table = make_kernel_table(isa);
  std::mt19937 engine(1);
  std::vector<uint8_t> stored(static_cast<size_t>(kRows * format->row_bytes(kCols)));
  for (uint8_t& byte : stored) byte = static_cast<uint8_t>(engine());
  Weight weight;
  weight.name = "bench";
  weight.format = format;
  weight.rows = kRows;
  weight.cols = kCols;
  weight.data = stored.data();
  auto bytes = plan_packing(weight, table);
  if (!bytes.ok()) return state.SkipWithError(bytes.error().message.c_str());
  auto packed = AlignedBuffer::allocate(*bytes, "bench");
  if (!packed.ok()) return state.SkipWithError(packed.error().message.c_str());
  const int64_t piece = 64 * weight.kernel->row_tile;
  for (auto _ : state) {
    pool.parallel_for((kRows + piece - 1) / piece, [&](int64_t i, int) {
      pack_rows(weight, i * piece, std::min(kRows, (i + 1) * piece), packed->data());
    });
  }
  state.SetBytesProcessed(static_cast<int64_t>(stored.size()) * state.iterations());
}

double peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) * 1024;
  return 0;
}

void bench_load(benchmark::State& state, const std::string& path) {
  LoadOptions options;
  options.threads = static_cast<int>(state.range(0));
  int64_t packed = 0;
  for (auto _ : state) {
    auto model = LanguageModel::load(path, options);
    if (!model.ok()) return state.SkipWithError(model.error().message.c_str());
    packed = (*model)->info().weight_bytes;
    state.PauseTiming();
    model->reset();
    state.ResumeTiming();
  }
  state.counters["packed_MB"] = static_cast<double>(packed) * 1e-6;
  state.counters["peak_MB"] = peak_bytes() * 1e-6;
  state.SetBytesProcessed(static_cast<int64_t>(std::filesystem::file_size(path)) * state.iterations());
}

int register_all() {
  for (const Format* format : formats().members()) {
    for (Isa isa : isa_levels()) {
      if (isa == Isa::ref) continue;
      const std::string name = "pack/" + std::string(format->name) + "/" + isa_name(isa);
      benchmark::RegisterBenchmark(name.c_str(), bench_pack, format, isa)
          ->Arg(1)
          ->Arg(2)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  const char* models = std::getenv("MILLRACE_BENCH_MODELS");
  std::istringstream paths(models ? models : "");
  for (std::string path; std::getline(paths, path, ':');)
    benchmark::RegisterBenchmark(("load/" + path).c_str(), bench_load, path)
        ->Arg(1)
        ->Arg(2)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  return 0;
}

const int registered = register_all();

}  // namespace
}  // namespace millrace
