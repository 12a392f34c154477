// Measures the machine's roofline: memory read bandwidth and multiply-add throughput. `millrace run` and `millrace
// bench` print their figures next to it. It takes memory and time, so it is not used while serving.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "formats/format.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

// Returns the read bandwidth in GB/s (10^9), with all threads of the pool. It is the best pass over a buffer of
// `bytes`, which should be larger than any cache; passes alternate between plain loads and loads with software prefetch
// for `seconds`. Allocating memory of the default size takes another 50 ms. Returns 0 if the memory cannot be
// allocated.
double measure_read_bandwidth(ThreadPool& pool, int64_t bytes = int64_t{256} << 20, double seconds = 0.05);

// Plain reads that a test alternates with the reads under test. The speed of a machine's memory changes from one second
// to the next, so only measurements taken close together can be compared.
class PlainReads {
 public:
  // Allocates its buffer of `bytes`. Errors: resource.
  static Result<PlainReads> create(ThreadPool& pool, int64_t bytes);
  // Reads the buffer once with loads alone and once with software prefetch. Returns the better rate in GB/s.
  double once();

 private:
  PlainReads(ThreadPool& pool, AlignedBuffer buffer, int64_t pieces)
      : pool_(&pool), buffer_(std::move(buffer)), pieces_(pieces) {}
  ThreadPool* pool_;
  AlignedBuffer buffer_;
  int64_t pieces_;
};

// Returns the read bandwidth of a cache in GB/s: every thread reads a separate buffer of `bytes_each` repeatedly.
double measure_cache_bandwidth(ThreadPool& pool, int64_t bytes_each, double seconds = 0.05);

// Return buffer sizes for each thread that fit into the L2 or L3 cache, but not into the previous level: half of the
// size that the system reports. If the system reports no size, or that of the whole chip's cache, the size is limited
// to a thread's share.
int64_t l2_buffer_bytes();
int64_t l3_buffer_bytes();

// Peak throughput of one instruction set over the whole pool: the best of the short runs in `seconds` for each kind.
struct ComputePeaks {
  double f32_gflop_per_s = 0;   // fused multiply-adds, two operations each
  double bf16_gflop_per_s = 0;  // dot products of bfloat16 pairs, two operations a product; 0: no such instruction
  double int8_gop_per_s = 0;    // 8-bit dot products, two operations each; 0: not available

  // Returns the peak for products with these activations; the f32 peak if there is no instruction for them.
  double of(Activation activation) const;
};
ComputePeaks measure_compute_peaks(ThreadPool& pool, Isa isa, double seconds = 0.08);

// The measured loops. The reference and each CPU feature have a file (ref/roof.cc, x86/ and arm/roof_*.cc); a feature
// replaces some of the loops.
struct RoofKernels {
  uint64_t (*read)(const uint8_t* data, int64_t bytes) = nullptr;  // 64-byte aligned, a multiple of 1024 bytes
  // Variant with software prefetch some kilobytes ahead, as in the kernels. Which of the two is faster changes over
  // time.
  uint64_t (*read_ahead)(const uint8_t* data, int64_t bytes) = nullptr;
  float (*fma)(int64_t rounds) = nullptr;
  int64_t fma_operations = 0;  // number of operations in a round
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
// Returns each loop in the best version for these features.
RoofKernels roof_kernels(Isa isa);

}  // namespace millrace
