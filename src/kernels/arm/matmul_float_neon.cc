// Float matmul for NEON: 8 rows in two registers.
#include "kernels/arm/matmul_lanes_neon.h"
#include "kernels/families.h"
#include "kernels/vector/matmul_float_weights.h"

namespace millrace {
namespace {

struct FloatLanes8 : Lanes8 {
  static F fma_in_order(F x, F y, F z) { return fma(x, y, z); }
  static F mul(F x, float factor) { return {vmulq_n_f32(x.a, factor), vmulq_n_f32(x.b, factor)}; }
  static F widen_f16(float16x8_t half) { return {vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half)}; }
  static F load_f16(const uint8_t* p) { return widen_f16(vreinterpretq_f16_u8(vld1q_u8(p))); }
  template <int part>
  static float32x4_t widen_bf16(uint32x4_t pairs) {
    if (part == 0) return vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    return vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
  }
  template <int part>
  static F load_bf16(const uint8_t* p) {
    return {widen_bf16<part>(vreinterpretq_u32_u8(vld1q_u8(p))),
            widen_bf16<part>(vreinterpretq_u32_u8(vld1q_u8(p + 16)))};
  }
  template <int part>
  static F broadcast_bf16(const uint8_t* p) {
    const float32x4_t x = widen_bf16<part>(vld1q_dup_u32(reinterpret_cast<const uint32_t*>(p)));
    return {x, x};
  }
  static F widen_f8(uint8x8_t codes) {
    const uint16x8_t high = vshll_n_u8(codes, 8);
    const uint16x8_t magnitude = vshrq_n_u16(vandq_u16(high, vdupq_n_u16(0x7f00)), 1);
    return widen_f16(vreinterpretq_f16_u16(vorrq_u16(magnitude, vandq_u16(high, vdupq_n_u16(0x8000)))));
  }
  static void load_f8(const uint8_t* p, F& even, F& odd) {
    even = widen_f8(vld1_u8(p));
    odd = widen_f8(vld1_u8(p + 8));
  }
};

}  // namespace

void add_matmul_float_neon(KernelTable& table) {
  add_float_kernel<F32Weights<FloatLanes8>>(table);
  add_float_kernel<F16Weights<FloatLanes8>>(table);
  add_float_kernel<Bf16Weights<FloatLanes8>>(table);
  add_f8_kernel<F8Weights<FloatLanes8>>(table);
}

}  // namespace millrace
