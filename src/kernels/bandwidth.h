// The machine's roof, measured: how fast memory can be read and how fast multiply-adds can go. `millrace
// run` and `millrace bench` put their figures beside it. Takes memory and time; not for the serving path.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "formats/format.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

// Bytes read a second in GB/s (10^9), with every thread of the pool: the best of the passes that fit into `seconds`
// over a buffer of `bytes` that no cache holds, by loads alone and by loads with software prefetch in turns. Another 50
// ms for the default to touch the memory. 0 if it cannot be had.
double measure_read_bandwidth(ThreadPool& pool, int64_t bytes = int64_t{256} << 20, double seconds = 0.05);

// Plain reads to be taken in turns with something else that reads: a machine's memory changes its speed from one second
// to the next, so that only what was measured beside each other compares.
class PlainReads {
 public:
  // Keeps a buffer of `bytes` for it. Errors: resource.
  static Result<PlainReads> create(ThreadPool& pool, int64_t bytes);
  // GB/s of reading the buffer once: by loads alone and with software prefetch, the better.
  double once();

 private:
  PlainReads(ThreadPool& pool, AlignedBuffer buffer, int64_t pieces)
      : pool_(&pool), buffer_(std::move(buffer)), pieces_(pieces) {}
  ThreadPool* pool_;
  AlignedBuffer buffer_;
  int64_t pieces_;
};

// The same from a cache: every thread reads a buffer of its own, `bytes_each`, over and over.
double measure_cache_bandwidth(ThreadPool& pool, int64_t bytes_each, double seconds = 0.05);

// Buffers, one a thread, that the second and the third level hold, and the level before does not. Half of what the
// system says, and no more than a share that a neighbour leaves us where it says nothing or speaks of the whole chip.
int64_t l2_buffer_bytes();
int64_t l3_buffer_bytes();

// Peaks of one instruction set over the whole pool, best of the short runs that fit into `seconds` (of each kind).
struct ComputePeaks {
  double f32_gflop_per_s = 0;   // fused multiply-adds, two operations each
  double bf16_gflop_per_s = 0;  // dot products of bfloat16 pairs, two operations a product; 0: no such instruction
  double int8_gop_per_s = 0;    // 8-bit dot products, two operations each; 0 where ref has none

  // What products of such activations can reach: the f32 peak where there is no instruction for them.
  double of(Activation activation) const;
};
ComputePeaks measure_compute_peaks(ThreadPool& pool, Isa isa, double seconds = 0.08);

// One instruction set's loops, each in its own file (ref/roof.cc, x86/roof_*.cc).
struct RoofKernels {
  uint64_t (*read)(const uint8_t* data, int64_t bytes) = nullptr;  // 64-byte aligned, a multiple of 1024 bytes
  // The same, asking for lines some kilobytes ahead as the kernels do: which of the two is faster changes from hour to
  // hour.
  uint64_t (*read_ahead)(const uint8_t* data, int64_t bytes) = nullptr;
  float (*fma)(int64_t rounds) = nullptr;
  int64_t fma_operations = 0;  // a round
  int32_t (*int8)(int64_t rounds) = nullptr;
  int64_t int8_operations = 0;
  float (*bf16)(int64_t rounds) = nullptr;
  int64_t bf16_operations = 0;
};
RoofKernels roof_kernels_ref();
RoofKernels roof_kernels_avx2();
RoofKernels roof_kernels_avx512();

}  // namespace millrace
