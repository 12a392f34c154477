// The loop of 8-bit dot products of bandwidth.h.
#include <arm_neon.h>

#include "kernels/bandwidth.h"

namespace millrace {
namespace {

constexpr int kChains = 16;

int32_t int8(int64_t rounds) {
  int32x4_t sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = vdupq_n_s32(c);
  int8x16_t a = vdupq_n_s8(3);
  const int8x16_t b = vdupq_n_s8(-1);
  for (int64_t i = 0; i < rounds; ++i) {
    for (int32x4_t& s : sum) {
      asm volatile("" : "+w"(a));  // otherwise the products would be computed once
      s = vdotq_s32(s, a, b);
    }
  }
  for (int c = 1; c < kChains; ++c) sum[0] = vaddq_s32(sum[0], sum[c]);
  return vgetq_lane_s32(sum[0], 0);
}

}  // namespace

RoofKernels roof_kernels_dotprod() { return {.int8 = int8, .int8_operations = kChains * 16 * 2}; }

}  // namespace millrace
