// The operations of the quantized matmuls of Arm, except the products. A vector has 4 rows. Levels of 8 bits are
// signed, because Arm's dot products multiply signed bytes.
#pragma once

#include <arm_neon.h>

#include "kernels/arm/bytes32_neon.h"
#include "kernels/vector/matmul_quant.h"

namespace millrace {
namespace {

struct NeonOperations {
  using I = int32x4_t;
  using F = float32x4_t;
  using Fields = Bytes32;
  static constexpr int kLanes = 4;
  static constexpr bool kPrefersSigned = true;
  static constexpr bool kFewInPlace = true;
  static constexpr int kFewTokens = 0;
  template <int N>
  static constexpr bool kSpreads = false;
  static constexpr bool kByMagnitudes = false;
  static constexpr bool kPairsColumns = false;
  static constexpr int64_t kPrefetchOne8 = 8192;

  static void keep_here(I& v) { asm volatile("" : "+w"(v)); }
  static I load(const uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
  static I zero() { return vdupq_n_s32(0); }
  static F zero_f() { return vdupq_n_f32(0); }
  static I set1_8(int v) { return vreinterpretq_s32_s8(vdupq_n_s8(static_cast<int8_t>(v))); }
  static I set1_32(int v) { return vdupq_n_s32(v); }
  static I bit_and(I a, I b) { return vandq_s32(a, b); }
  static I bit_xor(I a, I b) { return veorq_s32(a, b); }
  static I or_and(I a, I b, I mask) { return vorrq_s32(a, vandq_s32(b, mask)); }
  template <int kBits>
  static I shift_right(I v) {  // by a negative count: left
    if constexpr (kBits > 0) return vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(v), kBits));
    if constexpr (kBits < 0) return vreinterpretq_s32_u16(vshlq_n_u16(vreinterpretq_u16_s32(v), -kBits));
    return v;
  }
  static I shift_left_by(I v, I counts) { return vshlq_s32(v, counts); }
  template <int kBits>
  static I shift_left32(I v) {  // by a negative count: right, with the sign
    if constexpr (kBits > 0) return vshlq_n_s32(v, kBits);
    if constexpr (kBits < 0) return vshrq_n_s32(v, -kBits);
    return v;
  }
  static I broadcast16(const uint8_t* p) { return load(p); }
  static I look_up(I table, I codes) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(codes)));
  }
  // Looks up the code of each byte in which `bits` and `own` have a bit in common; other bytes are those of `other`.
  static I look_up_where(I bits, I own, I table, I codes, I other) {
    const uint8x16_t common = vtstq_u8(vreinterpretq_u8_s32(bits), vreinterpretq_u8_s32(own));
    return vreinterpretq_s32_u8(
        vbslq_u8(common, vreinterpretq_u8_s32(look_up(table, codes)), vreinterpretq_u8_s32(other)));
  }
  // Interleaves the 32-bit words (or pairs of words) of the low or high halves of a and b.
  static I unpack_low32(I a, I b) { return vzip1q_s32(a, b); }
  static I unpack_high32(I a, I b) { return vzip2q_s32(a, b); }
  static I unpack_low64(I a, I b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
  static I unpack_high64(I a, I b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
  // Returns the even (odd) 32-bit words of a, then those of b.
  static I even32(I a, I b) { return vuzp1q_s32(a, b); }
  static I odd32(I a, I b) { return vuzp2q_s32(a, b); }
  // Loads 8 bytes from each of the addresses at(0) and at(1).
  template <typename At>
  [[gnu::always_inline]] static I load_words(const At& at) {
    using First = std::integral_constant<int, 0>;
    using Second = std::integral_constant<int, 1>;
    return vreinterpretq_s32_s8(vcombine_s8(vld1_s8(at(First())), vld1_s8(at(Second()))));
  }
  static I add8(I a, I b) { return vreinterpretq_s32_s8(vaddq_s8(vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))); }
  static I add32(I a, I b) { return vaddq_s32(a, b); }
  static I pairs(I low, I high) { return vsliq_n_s32(low, high, 16); }
  static I load_i8(const uint8_t* p) { return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(quarter_load(p))))); }
  static I load_u8(const uint8_t* p) {
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(quarter_load(p))))));
  }
  static F load_f16(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
  static F load_f32(const uint8_t* p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
  static F load_e8m0(const uint8_t* p) {  // see e8m0_half_to_f32
    const uint32x4_t e = vreinterpretq_u32_s32(load_u8(p));
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    const uint32x4_t bits = vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, normal);
    return vreinterpretq_f32_u32(vbslq_u32(vceqq_u32(e, vdupq_n_u32(255)), vdupq_n_u32(0x7fc00000), bits));
  }
  static F load_e4m3(const uint8_t* p) {  // see e4m3_in_f16
    return vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(vshll_n_u8(vreinterpret_u8_u32(quarter_load(p)), 7))));
  }
  static F to_float(I v) { return vcvtq_f32_s32(v); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F negated_fma(F a, F b, F c) { return vfmsq_f32(c, a, b); }
  static F broadcast_f32(const uint8_t* p) { return vld1q_dup_f32(reinterpret_cast<const float*>(p)); }
  static I broadcast32(const void* p) { return vld1q_dup_s32(static_cast<const int32_t*>(p)); }
  static I dot_pairs(I a, I b) {
    const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
  }

  static void store_past(float* y, F v) { vst1q_f32(y, v); }
  static void fence() {}
  static void store(float* y, F v, int64_t count) {
    if (count >= kLanes) return vst1q_f32(y, v);
    float lanes[kLanes];
    vst1q_f32(lanes, v);
    for (int64_t i = 0; i < count; ++i) y[i] = lanes[i];
  }

  // Rearranges W[2i] to rows 0 and 1, and W[2i + 1] to rows 2 and 3, with eight adjacent columns for each row.
  static void pair_columns(I (&w)[8]) {
    for (int j = 0; j < 8; j += 2) {
      const I a = w[j], b = w[j + 1];
      w[j] = vzip1q_s32(a, b);
      w[j + 1] = vzip2q_s32(a, b);
    }
  }

 private:
  static uint32x2_t quarter_load(const uint8_t* p) { return vld1_dup_u32(reinterpret_cast<const uint32_t*>(p)); }
};

}  // namespace
}  // namespace millrace
