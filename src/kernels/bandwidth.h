// Measures the machine's roofline: memory read bandwidth and multiply-add throughput. `millrace run` and `millrace
// bench` print their figures next to it. Takes memory and time; not for the serving path.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "formats/format.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

// Read bandwidth in GB/s (10^9), with every thread of the pool: the best of the passes that fit into `seconds` over a
// buffer of `bytes`, larger than any cache, alternating between plain loads and loads with software prefetch. Touching
// memory of the default size takes another 50 ms. 0 if it cannot be allocated.
double measure_read_bandwidth(ThreadPool& pool, int64_t bytes = int64_t{256} << 20, double seconds = 0.05);

// Plain reads, to be alternated with the reads under test: a machine's memory changes its speed from one second to the
// next, so only measurements taken close together compare.
class PlainReads {
 public:
  // Allocates its buffer of `bytes`. Errors: resource.
  static Result<PlainReads> create(ThreadPool& pool, int64_t bytes);
  // GB/s of reading the buffer once, by loads alone and with software prefetch; returns the better.
  double once();

 private:
  PlainReads(ThreadPool& pool, AlignedBuffer buffer, int64_t pieces)
      : pool_(&pool), buffer_(std::move(buffer)), pieces_(pieces) {}
  ThreadPool* pool_;
  AlignedBuffer buffer_;
  int64_t pieces_;
};

// Read bandwidth of a cache: every thread reads its own buffer of `bytes_each` again and again.
double measure_cache_bandwidth(ThreadPool& pool, int64_t bytes_each, double seconds = 0.05);

// Per-thread buffer sizes that fit into the second and third cache level but not into the previous one: half of the
// size that the system reports. If it reports nothing, or the size of the whole chip's cache, a fair share is the
// limit.
int64_t l2_buffer_bytes();
int64_t l3_buffer_bytes();

// Peak throughput of one instruction set over the whole pool, best of the short runs that fit into `seconds` (per
// kind).
struct ComputePeaks {
  double f32_gflop_per_s = 0;   // fused multiply-adds, two operations each
  double bf16_gflop_per_s = 0;  // dot products of bfloat16 pairs, two operations a product; 0: no such instruction
  double int8_gop_per_s = 0;    // 8-bit dot products, two operations each; 0 where ref has none

  // The peak for products of such activations: the f32 peak if there is no instruction for them.
  double of(Activation activation) const;
};
ComputePeaks measure_compute_peaks(ThreadPool& pool, Isa isa, double seconds = 0.08);

// The loops of a level or of one feature, each in its own file (ref/roof.cc, x86/ and arm/roof_*.cc); a feature
// replaces some.
struct RoofKernels {
  uint64_t (*read)(const uint8_t* data, int64_t bytes) = nullptr;  // 64-byte aligned, a multiple of 1024 bytes
  // Variant with software prefetch some kilobytes ahead, as in the kernels. Which of the two is faster changes from
  // hour to hour.
  uint64_t (*read_ahead)(const uint8_t* data, int64_t bytes) = nullptr;
  float (*fma)(int64_t rounds) = nullptr;
  int64_t fma_operations = 0;  // per round
  int32_t (*int8)(int64_t rounds) = nullptr;
  int64_t int8_operations = 0;
  float (*bf16)(int64_t rounds) = nullptr;
  int64_t bf16_operations = 0;
};
RoofKernels roof_kernels_ref();
RoofKernels roof_kernels_avx2();
RoofKernels roof_kernels_avxvnni();
RoofKernels roof_kernels_avx512();
RoofKernels roof_kernels_avx512vnni();
RoofKernels roof_kernels_avx512bf16();
RoofKernels roof_kernels_amxint8();
RoofKernels roof_kernels_amxbf16();
RoofKernels roof_kernels_neon();
RoofKernels roof_kernels_dotprod();
RoofKernels roof_kernels_i8mm();
RoofKernels roof_kernels_armbf16();
// Each loop in the best version for these features.
RoofKernels roof_kernels(Isa isa);

}  // namespace millrace
