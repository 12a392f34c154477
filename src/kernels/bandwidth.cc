#include "kernels/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // bytes one thread reads at a time
constexpr int kPasses = 5;
constexpr double kReadSeconds = 0.05;  // no further pass after this long

RoofKernels kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return roof_kernels_avx512();
  if (isa == Isa::avx2) return roof_kernels_avx2();
#endif
  return roof_kernels_ref();
}

template <typename Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Results of loops that nobody needs, kept so that no compiler drops them.
std::atomic<uint64_t> sink;

// Operations a second of `loop`, every thread at once: rounds are doubled until a run takes 2 ms.
template <typename Loop>
double peak(ThreadPool& pool, Loop loop, int64_t operations) {
  if (!loop || operations == 0) return 0;
  const auto run = [&](int64_t rounds) {
    return seconds([&] {
      pool.parallel_for(pool.threads(), [&](int64_t, int) {
        sink.fetch_add(static_cast<uint64_t>(loop(rounds)), std::memory_order_relaxed);
      });
    });
  };
  int64_t rounds = 1 << 10;
  while (rounds < (int64_t{1} << 40) && run(rounds) < 2e-3) rounds *= 2;
  double best = run(rounds);
  for (int pass = 1; pass < kPasses; ++pass) best = std::min(best, run(rounds));
  return static_cast<double>(rounds * operations * pool.threads()) / best;
}

}  // namespace

double measure_read_bandwidth(ThreadPool& pool, int64_t bytes) {
  const int64_t pieces = std::max<int64_t>(1, bytes / kPiece);
  auto buffer = AlignedBuffer::allocate(pieces * kPiece, "the bandwidth measurement");
  if (!buffer.ok()) return 0;
  uint8_t* data = buffer.value().data();
  const RoofKernels kernels = kernels_of(detect_isa());
  pool.parallel_for(pieces, [&](int64_t i, int) {  // an untouched page may be the one shared page of zeros
    for (int64_t at = 0; at < kPiece; at += 4096) data[i * kPiece + at] = 1;
  });
  double best = 1e30;
  double spent = 0;
  for (int pass = 0; pass < kPasses && spent < kReadSeconds; ++pass) {
    const double took = seconds([&] {
      pool.parallel_for(pieces, [&](int64_t i, int) {
        sink.fetch_add(kernels.read(data + i * kPiece, kPiece), std::memory_order_relaxed);
      });
    });
    spent += took;
    best = std::min(best, took);
  }
  return static_cast<double>(pieces * kPiece) / best / 1e9;
}

ComputePeaks measure_compute_peaks(ThreadPool& pool, Isa isa) {
  const RoofKernels kernels = kernels_of(std::min(isa, detect_isa()));
  ComputePeaks peaks;
  peaks.f32_gflop_per_s = peak(pool, kernels.fma, kernels.fma_operations) / 1e9;
  peaks.int8_gop_per_s = peak(pool, kernels.int8, kernels.int8_operations) / 1e9;
  return peaks;
}

}  // namespace millrace
