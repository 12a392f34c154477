// The loop of 8-bit products of bandwidth.h that NEON and its extensions share; kSums independent sums hide the latency
// of an instruction. Everything is in an unnamed namespace, because each file that includes this is compiled for other
// features.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace millrace {
namespace {

// multiply(sum, a, b) adds products of the bytes of a and b to a vector of sums.
template <int kSums, typename Multiply>
[[gnu::always_inline]] inline int32_t multiply_bytes(int64_t rounds, const Multiply& multiply) {
  int32x4_t sum[kSums];
  for (int c = 0; c < kSums; ++c) sum[c] = vdupq_n_s32(c);
  int8x16_t a = vdupq_n_s8(3);
  const int8x16_t b = vdupq_n_s8(-1);
  for (int64_t i = 0; i < rounds; ++i) {
    for (int32x4_t& s : sum) {
      asm volatile("" : "+w"(a));  // otherwise the products would be computed once
      s = multiply(s, a, b);
    }
  }
  for (int c = 1; c < kSums; ++c) sum[0] = vaddq_s32(sum[0], sum[c]);
  return vgetq_lane_s32(sum[0], 0);
}

}  // namespace
}  // namespace millrace
