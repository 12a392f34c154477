// Operations that the kernels of weights with parts need in addition to simd_neon.h, which is included first: 8 lanes
// of f32.
#pragma once

namespace millrace {
namespace {

struct PartSimd {
  using F = Simd::F;

  // The power of two at or below each magnitude; 0 below the normal numbers.
  static F exponent(F x) {
    const auto one = [](float32x4_t v) {
      return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0x7f800000u)));
    };
    return {one(x.a), one(x.b)};
  }

  // For values at a distance of kDistance: writes their sum to the lower lane, and the lower minus the upper to the
  // upper lane.
  template <int kDistance>
  static F pair_sums(F x) {
    if constexpr (kDistance == 4) {
      return {vaddq_f32(x.a, x.b), vsubq_f32(x.a, x.b)};
    } else {
      const auto one = [](float32x4_t v) {
        constexpr uint32_t kAll = 0xffffffffu;
        const uint32_t upper[4] = {0, kDistance == 1 ? kAll : 0, kDistance == 2 ? kAll : 0, kAll};
        const float32x4_t other = kDistance == 1 ? vrev64q_f32(v) : vextq_f32(v, v, 2);
        return vbslq_f32(vld1q_u32(upper), vsubq_f32(other, v), vaddq_f32(v, other));
      };
      return {one(x.a), one(x.b)};
    }
  }

  // 16 values within [-128, 127] as int8, rounded to nearest even; returns their sum.
  static int store_levels16(uint8_t* p, const F (&v)[2]) {
    const auto words = [](F x) { return vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.a)), vmovn_s32(vcvtnq_s32_f32(x.b))); };
    const int8x16_t bytes = vcombine_s8(vmovn_s16(words(v[0])), vmovn_s16(words(v[1])));
    vst1q_u8(p, vreinterpretq_u8_s8(bytes));
    return vaddlvq_s8(bytes);
  }
};

}  // namespace
}  // namespace millrace
