#include "kernels/bandwidth.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // bytes one thread reads at a time
constexpr int kPasses = 4;                    // minimum
constexpr double kRunSeconds = 2e-3;          // duration of a loop: longer than a wake-up, shorter than a time slice

template <typename Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Keeps the compiler from removing the loops.
std::atomic<uint64_t> optimizer_sink;

// The shortest of the runs that fit into `budget` seconds; at least kPasses runs.
template <typename Body>
double best_seconds(double budget, const Body& body) {
  double best = 1e30, spent = 0;
  for (int pass = 0; pass < kPasses || spent < budget; ++pass) {
    const double took = seconds(body);
    spent += took;
    best = std::min(best, took);
  }
  return best;
}

// Doubles the rounds of `run(rounds)` until it takes kRunSeconds; returns the best time per round.
template <typename Run>
double best_round(double budget, const Run& run) {
  int64_t rounds = 1;
  while (rounds < (int64_t{1} << 40) && seconds([&] { run(rounds); }) < kRunSeconds) rounds *= 2;
  return best_seconds(budget, [&] { run(rounds); }) / static_cast<double>(rounds);
}

// Operations per second of `loop` on all threads at once.
template <typename Loop>
double peak(ThreadPool& pool, Loop loop, int64_t operations, double budget) {
  if (!loop || operations == 0) return 0;
  constexpr int64_t kUnit = 256;  // enough rounds to amortize the clock and the fork
  const double best = best_round(budget, [&](int64_t rounds) {
    pool.parallel_for(pool.threads(), [&](int64_t, int) {
      optimizer_sink.fetch_add(static_cast<uint64_t>(loop(rounds * kUnit)), std::memory_order_relaxed);
    });
  });
  return static_cast<double>(kUnit * operations * pool.threads()) / best;
}

Result<AlignedBuffer> touched_buffer(ThreadPool& pool, int64_t pieces, int64_t piece) {
  MILLRACE_TRY(auto buffer, AlignedBuffer::allocate(pieces * piece, "the bandwidth measurement"));
  uint8_t* data = buffer.data();
  pool.parallel_for(pieces, [&](int64_t i, int) {  // an untouched page may be the shared zero page
    for (int64_t at = 0; at < piece; at += 4096) data[i * piece + at] = 1;
  });
  return buffer;
}

int64_t cache_bytes(int name, int64_t guess) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : guess;
}

}  // namespace

RoofKernels roof_kernels(Isa isa) {
  RoofKernels best = roof_kernels_ref();
  [[maybe_unused]] const auto take_int8 = [&](const RoofKernels& from) {
    best.int8 = from.int8;
    best.int8_operations = from.int8_operations;
  };
  [[maybe_unused]] const auto take_bf16 = [&](const RoofKernels& from) {
    best.bf16 = from.bf16;
    best.bf16_operations = from.bf16_operations;
  };
#if defined(__x86_64__)
  if (isa.has(Feature::avx2)) best = roof_kernels_avx2();
  if (isa.has(Feature::avx_vnni)) take_int8(roof_kernels_avxvnni());
  if (isa.has(Feature::avx512)) {
    const RoofKernels wide = roof_kernels_avx512();
    best.read = wide.read;
    best.read_ahead = wide.read_ahead;
    best.fma = wide.fma;
    best.fma_operations = wide.fma_operations;
  }
  if (isa.has(Feature::avx512_vnni)) take_int8(roof_kernels_avx512vnni());
  if (isa.has(Feature::amx_int8)) take_int8(roof_kernels_amxint8());
  if (isa.has(Feature::avx512_bf16)) take_bf16(roof_kernels_avx512bf16());
  if (isa.has(Feature::amx_bf16)) take_bf16(roof_kernels_amxbf16());
#elif defined(__aarch64__)
  if (isa.has(Feature::neon)) best = roof_kernels_neon();
  if (isa.has(Feature::dotprod)) take_int8(roof_kernels_dotprod());
  if (isa.has(Feature::i8mm)) take_int8(roof_kernels_i8mm());
  if (isa.has(Feature::arm_bf16)) take_bf16(roof_kernels_armbf16());
#endif
  return best;
}

double measure_read_bandwidth(ThreadPool& pool, int64_t bytes, double budget) {
  const int64_t pieces = std::max<int64_t>(1, bytes / kPiece);
  auto buffer = touched_buffer(pool, pieces, kPiece);
  if (!buffer.ok()) return 0;
  const uint8_t* data = buffer.value().data();
  const RoofKernels kernels = roof_kernels(detect_isa());
  int pass = 0;
  const double best = best_seconds(budget, [&] {
    const auto read = pass++ % 2 == 0 ? kernels.read : kernels.read_ahead;
    pool.parallel_for(pieces, [&](int64_t i, int) {
      optimizer_sink.fetch_add(read(data + i * kPiece, kPiece), std::memory_order_relaxed);
    });
  });
  return static_cast<double>(pieces * kPiece) / best / 1e9;
}

Result<PlainReads> PlainReads::create(ThreadPool& pool, int64_t bytes) {
  const int64_t pieces = std::max<int64_t>(1, bytes / kPiece);
  MILLRACE_TRY(auto buffer, touched_buffer(pool, pieces, kPiece));
  return PlainReads(pool, std::move(buffer), pieces);
}

double PlainReads::once() {
  const RoofKernels kernels = roof_kernels(detect_isa());
  double best = 1e30;
  for (const auto read : {kernels.read, kernels.read_ahead}) {
    best = std::min(best, seconds([&] {
                      pool_->parallel_for(pieces_, [&](int64_t i, int) {
                        optimizer_sink.fetch_add(read(buffer_.data() + i * kPiece, kPiece), std::memory_order_relaxed);
                      });
                    }));
  }
  return static_cast<double>(pieces_ * kPiece) / best / 1e9;
}

double measure_cache_bandwidth(ThreadPool& pool, int64_t bytes_each, double budget) {
  auto buffer = touched_buffer(pool, pool.threads(), bytes_each);
  if (!buffer.ok()) return 0;
  const uint8_t* data = buffer.value().data();
  const RoofKernels kernels = roof_kernels(detect_isa());
  const double best = best_round(budget, [&](int64_t rounds) {
    pool.parallel_for(pool.threads(), [&](int64_t, int worker) {
      uint64_t sum = 0;
      for (int64_t i = 0; i < rounds; ++i) sum += kernels.read(data + worker * bytes_each, bytes_each);
      optimizer_sink.fetch_add(sum, std::memory_order_relaxed);
    });
  });
  return static_cast<double>(bytes_each * pool.threads()) / best / 1e9;
}

int64_t l2_buffer_bytes() {
  return std::clamp<int64_t>(cache_bytes(_SC_LEVEL2_CACHE_SIZE, 512 << 10) / 2, 64 << 10, 1 << 20);
}

int64_t l3_buffer_bytes() {
  const int64_t half = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 16 << 20) / 2 / available_cores();
  return std::max(4 * l2_buffer_bytes(), std::min<int64_t>(half, 6 << 20)) / 4096 * 4096;
}

double ComputePeaks::of(Activation activation) const {
  const double own = is_int8(activation) ? int8_gop_per_s : activation == Activation::bf16 ? bf16_gflop_per_s : 0;
  return own > 0 ? own : f32_gflop_per_s;
}

ComputePeaks measure_compute_peaks(ThreadPool& pool, Isa isa, double budget) {
  const RoofKernels kernels = roof_kernels(isa);
  ComputePeaks peaks;
  peaks.f32_gflop_per_s = peak(pool, kernels.fma, kernels.fma_operations, budget) / 1e9;
  peaks.bf16_gflop_per_s = peak(pool, kernels.bf16, kernels.bf16_operations, budget) / 1e9;
  peaks.int8_gop_per_s = peak(pool, kernels.int8, kernels.int8_operations, budget) / 1e9;
  return peaks;
}

}  // namespace millrace
