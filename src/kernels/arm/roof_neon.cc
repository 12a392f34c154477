// The NEON loops of bandwidth.h. Sixteen independent chains hide the latency of the multiply-adds.
#include <arm_neon.h>

#include "kernels/arm/roof_int8.h"
#include "kernels/bandwidth.h"

namespace millrace {
namespace {

constexpr int kChains = 16;
constexpr int kInt8Sums = 6;
constexpr int64_t kAheadBytes = 8192;

template <bool kAhead>
uint64_t read(const uint8_t* data, int64_t bytes) {
  uint64x2_t sum[16];
  for (uint64x2_t& s : sum) s = vdupq_n_u64(0);
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int c = 0; c < 16; ++c) {
      if (kAhead && c % 4 == 0) __builtin_prefetch(data + i + c * 16 + kAheadBytes);
      sum[c] = vaddq_u64(sum[c], vreinterpretq_u64_u8(vld1q_u8(data + i + c * 16)));
    }
  }
  for (int c = 1; c < 16; ++c) sum[0] = vaddq_u64(sum[0], sum[c]);
  return vgetq_lane_u64(sum[0], 0);
}

float fma(int64_t rounds) {
  float32x4_t sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = vdupq_n_f32(static_cast<float>(c));
  const float32x4_t a = vdupq_n_f32(0.999f), b = vdupq_n_f32(0.001f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (float32x4_t& s : sum) s = vfmaq_f32(b, s, a);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = vaddq_f32(sum[0], sum[c]);
  return vgetq_lane_f32(sum[0], 0);
}

// Bytes to 16 bits to 32: four instructions for 16 products.
int32_t int8(int64_t rounds) {
  return multiply_bytes<kInt8Sums>(rounds, [](int32x4_t sum, int8x16_t a, int8x16_t b) {
    return vpadalq_s16(sum, vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)));
  });
}

}  // namespace

RoofKernels roof_kernels_neon() {
  return {read<false>, read<true>, fma, kChains * 4 * 2, int8, kInt8Sums * 16 * 2, nullptr, 0};
}

}  // namespace millrace
