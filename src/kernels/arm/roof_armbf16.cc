// The loop of bfloat16 dot products of bandwidth.h.
#include <arm_neon.h>

#include "kernels/bandwidth.h"

namespace millrace {
namespace {

constexpr int kChains = 16;

float bf16(int64_t rounds) {
  float32x4_t sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = vdupq_n_f32(static_cast<float>(c));
  uint16_t one = 0x3f80, small = 0x3c00;
  asm("" : "+r"(one), "+r"(small));  // GCC 12 makes such constants by an instruction of FP16
  bfloat16x8_t a = vreinterpretq_bf16_u16(vdupq_n_u16(one));
  const bfloat16x8_t b = vreinterpretq_bf16_u16(vdupq_n_u16(small));
  for (int64_t i = 0; i < rounds; ++i) {
    for (float32x4_t& s : sum) {
      asm volatile("" : "+w"(a));  // otherwise the products would be computed once
      s = vbfdotq_f32(s, a, b);
    }
  }
  for (int c = 1; c < kChains; ++c) sum[0] = vaddq_f32(sum[0], sum[c]);
  return vgetq_lane_f32(sum[0], 0);
}

}  // namespace

RoofKernels roof_kernels_armbf16() { return {.bf16 = bf16, .bf16_operations = kChains * 8 * 2}; }

}  // namespace millrace
