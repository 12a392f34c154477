// The machine's roof, measured: how fast memory can be read and how fast multiply-adds can go. `millrace
// run` and `millrace bench` put their figures beside it. Takes memory and time; not for the serving path.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/thread_pool.h"

namespace millrace {

// Bytes read a second in GB/s (10^9), with every thread of the pool: the best of some passes over a buffer of
// `bytes` that no cache holds. About 100 ms for the default. 0 if the memory cannot be had.
double measure_read_bandwidth(ThreadPool& pool, int64_t bytes = int64_t{256} << 20);

// Peaks of one instruction set over the whole pool, best of some short runs (a few ms each).
struct ComputePeaks {
  double f32_gflop_per_s = 0;  // fused multiply-adds, two operations each
  double int8_gop_per_s = 0;   // 8-bit dot products, two operations each; 0 where ref has none
};
ComputePeaks measure_compute_peaks(ThreadPool& pool, Isa isa);

// One instruction set's loops, each in its own file (ref/roof.cc, x86/roof_*.cc).
struct RoofKernels {
  uint64_t (*read)(const uint8_t* data, int64_t bytes) = nullptr;  // 64-byte aligned, a multiple of 1024 bytes
  float (*fma)(int64_t rounds) = nullptr;
  int64_t fma_operations = 0;  // a round
  int32_t (*int8)(int64_t rounds) = nullptr;
  int64_t int8_operations = 0;
};
RoofKernels roof_kernels_ref();
RoofKernels roof_kernels_avx2();
RoofKernels roof_kernels_avx512();

}  // namespace millrace
