#include "kernels/bandwidth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace millrace {
namespace {

TEST(Bandwidth, IsAPositiveNumber) {
  ThreadPool pool(2);
  const double measured = measure_read_bandwidth(pool, int64_t{8} << 20);
  EXPECT_GT(measured, 0);
  EXPECT_TRUE(std::isfinite(measured));
}

TEST(Bandwidth, PlainReadsCanBeRepeated) {
  ThreadPool pool(2);
  auto reads = PlainReads::create(pool, int64_t{3} << 20);
  ASSERT_TRUE(reads.ok());
  for (int i = 0; i < 3; ++i) {
    const double measured = reads->once();
    EXPECT_GT(measured, 0);
    EXPECT_TRUE(std::isfinite(measured));
  }
  EXPECT_FALSE(PlainReads::create(pool, int64_t{1} << 60).ok());
}

TEST(Bandwidth, ReadsCaches) {
  ThreadPool pool(2);
  EXPECT_GE(l3_buffer_bytes(), 2 * l2_buffer_bytes());
  const double measured = measure_cache_bandwidth(pool, l2_buffer_bytes(), 0.0);
  EXPECT_GT(measured, 0);
  EXPECT_TRUE(std::isfinite(measured));
}

TEST(Bandwidth, ComputePeaksExistForEveryInstructionSet) {
  ThreadPool pool(1);
  for (Isa isa : isa_variants()) {
    const ComputePeaks peaks = measure_compute_peaks(pool, isa);
    EXPECT_GT(peaks.f32_gflop_per_s, 0) << isa_name(isa);
    EXPECT_EQ(peaks.int8_gop_per_s > 0, isa != Isa::ref) << isa_name(isa);
    const bool has_bf16 = isa.has(Feature::avx512_bf16) || isa.has(Feature::arm_bf16);
    EXPECT_EQ(peaks.bf16_gflop_per_s > 0, has_bf16) << isa_name(isa);
    EXPECT_EQ(peaks.of(Activation::bf16), has_bf16 ? peaks.bf16_gflop_per_s : peaks.f32_gflop_per_s);
    EXPECT_EQ(peaks.of(Activation::f32), peaks.f32_gflop_per_s);
  }
}

// The loops must read every byte they claim to: the sums of the words they add up agree.
TEST(Bandwidth, ReadLoopsReadEveryByte) {
  alignas(64) static uint8_t data[4096];
  for (int at = 0; at < 4096; at += 64) data[at] = 1;  // lane 0 of every vector
  for (Isa isa : isa_variants()) {
    const RoofKernels kernels = roof_kernels(isa);
    EXPECT_EQ(kernels.read(data, 4096), 64u);
    EXPECT_EQ(kernels.read_ahead(data, 4096), 64u);
  }
}

}  // namespace
}  // namespace millrace
