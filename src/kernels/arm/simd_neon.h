// The vector operations that the shared kernel sources use, for NEON: 8 lanes of f32 in two registers. The lanes, the
// order of operations and the order of sums are those of simd_avx2.h, so results equal those of AVX2 bit for bit. Only
// *_neon.cc may include this. Everything is in an unnamed namespace.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

struct Simd {
  struct F {
    float32x4_t a, b;  // lanes 0 to 3, 4 to 7
  };
  static constexpr int kLanes = 8;
  static constexpr int kRows = 4;     // query rows per pass of the attention kernels (32 registers, two per vector)
  static constexpr int kVectors = 2;  // vectors of a value row per pass

  static F zero() { return set(0); }
  static F set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  static F load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static F load_n(const float* p, int64_t n) {  // n < kLanes; the other lanes are 0
    float lanes[kLanes] = {};
    std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return load(lanes);
  }
  static void store(float* p, F v) {
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
  }
  static void store_n(float* p, F v, int64_t n) {
    float lanes[kLanes];
    store(lanes, v);
    std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
  }
  static void prefetch(const uint8_t* p) { asm volatile("prfm pldl1keep, %a0" : : "p"(p)); }
  static float first(F v) { return vgetq_lane_f32(v.a, 0); }

  static F add(F x, F y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
  static F sub(F x, F y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
  static F mul(F x, F y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
  static F div(F x, F y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
  static F fma(F x, F y, F z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }   // x * y + z
  static F fnma(F x, F y, F z) { return {vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b)}; }  // z - x * y
  static float32x4_t max4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
  static float32x4_t min4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
  static F max(F x, F y) { return {max4(x.a, y.a), max4(x.b, y.b)}; }  // y if x or y is NaN
  static F min(F x, F y) { return {min4(x.a, y.a), min4(x.b, y.b)}; }
  static F abs(F x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
  static F copy_sign(F magnitude, F sign) {
    const auto one = [](float32x4_t m, float32x4_t s) {
      const uint32x4_t bit = vandq_u32(vreinterpretq_u32_f32(s), vdupq_n_u32(0x80000000u));
      return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(m), bit));
    };
    return {one(magnitude.a, sign.a), one(magnitude.b, sign.b)};
  }
  static F round(F x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }
  static F if_less(F x, F y, F yes, F no) {  // x < y ? yes : no
    return {vbslq_f32(vcltq_f32(x.a, y.a), yes.a, no.a), vbslq_f32(vcltq_f32(x.b, y.b), yes.b, no.b)};
  }
  static F zero_nan(F x) {
    const auto one = [](float32x4_t v) {
      return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), vceqq_f32(v, v)));
    };
    return {one(x.a), one(x.b)};
  }
  static bool any_nan(F x) { return vminvq_u32(vandq_u32(vceqq_f32(x.a, x.a), vceqq_f32(x.b, x.b))) == 0; }

  // power_of_two() returns 2^n for integral n in [-126, 127]; half_floor() returns floor(n / 2).
  static F power_of_two(F n) {
    const auto one = [](float32x4_t v) {
      return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(v), vdupq_n_s32(127)), 23));
    };
    return {one(n.a), one(n.b)};
  }
  static F half_floor(F n) {
    const auto one = [](float32x4_t v) { return vcvtq_f32_s32(vshrq_n_s32(vcvtnq_s32_f32(v), 1)); };
    return {one(n.a), one(n.b)};
  }

  // Reductions have a fixed order: lanes i and i + 4, then i + 2, then i + 1.
  static float sum(F v) {
    const float32x4_t four = vaddq_f32(v.a, v.b);
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  static float largest(F v) {
    const float32x4_t four = max4(v.a, v.b);
    const float32x4_t two = max4(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(max4(two, vextq_f32(two, two, 1)), 0);
  }

  // Load kLanes values from p.
  static F widen_f16(uint16x8_t half) {
    return {vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(half))),
            vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(half)))};
  }
  static F load_f16(const uint8_t* p) { return widen_f16(load_words(p)); }
  static F load_bf16(const uint8_t* p) {
    const uint16x8_t half = load_words(p);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(half), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(half, 16))};
  }
  static F load_i8(const uint8_t* p) {
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
  }
  // Returns in lane i the value kLanes * part + i of a unit of 8 bytes of levels (AffineRows), as f32.
  template <int kBits>
  static F levels(const uint8_t* unit, int part) {
    const uint16x8_t wide = vmovl_u8(vld1_u8(unit));
    const uint16x8_t low =
        vandq_u16(vshlq_u16(wide, vdupq_n_s16(static_cast<int16_t>(-part * kBits))), vdupq_n_u16((1 << kBits) - 1));
    return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low))};
  }
  static float from_f16(int bits) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(static_cast<uint16_t>(bits)))), 0);
  }
  static float f16(const uint8_t* p) { return from_f16(p[0] | p[1] << 8); }
  static uint16_t to_f16(float x) { return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0); }
  static void store_f16(uint8_t* p, F v) {
    store_words(p, vcombine_u16(vreinterpret_u16_f16(vcvt_f16_f32(v.a)), vreinterpret_u16_f16(vcvt_f16_f32(v.b))));
  }
  static void store_bf16(uint8_t* p, F v) {  // v finite
    const auto one = [](float32x4_t x) {
      const uint32x4_t bits = vreinterpretq_u32_f32(x);
      const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
      return vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    };
    store_words(p, vcombine_u16(one(v.a), one(v.b)));
  }
  static void store_i8(uint8_t* p, F v) {  // rounded to nearest even; v within [-128, 127]
    const int16x8_t words = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(v.a)), vmovn_s32(vcvtnq_s32_f32(v.b)));
    vst1_u8(p, vreinterpret_u8_s8(vmovn_s16(words)));
  }

  // Transposes four 32-bit words at byte `offset` of each of 8 rows: lane r of out[c] is word c of row r.
  static void transpose_words(const uint8_t* const* rows, int64_t offset, F* out) {
    float32x4_t half[2][4];
    for (int h = 0; h < 2; ++h) {
      const auto words = [&](int r) { return vreinterpretq_f32_u8(vld1q_u8(rows[4 * h + r] + offset)); };
      const float32x4_t low02 = vzip1q_f32(words(0), words(2)), high02 = vzip2q_f32(words(0), words(2));
      const float32x4_t low13 = vzip1q_f32(words(1), words(3)), high13 = vzip2q_f32(words(1), words(3));
      half[h][0] = vzip1q_f32(low02, low13);
      half[h][1] = vzip2q_f32(low02, low13);
      half[h][2] = vzip1q_f32(high02, high13);
      half[h][3] = vzip2q_f32(high02, high13);
    }
    for (int c = 0; c < 4; ++c) out[c] = {half[0][c], half[1][c]};
  }

  // Return a part of each 32-bit lane as f32: one of its two f16 or bf16 (part 0 is the lower one), or of its four
  // int8.
  static F f16_part(F v, int part) {
    const uint16x8_t low = vreinterpretq_u16_f32(v.a), high = vreinterpretq_u16_f32(v.b);
    return widen_f16(part ? vuzp2q_u16(low, high) : vuzp1q_u16(low, high));
  }
  static F bf16_part(F v, int part) {
    const auto one = [part](float32x4_t x) {
      const uint32x4_t bits = vreinterpretq_u32_f32(x);
      return vreinterpretq_f32_u32(part ? vandq_u32(bits, vdupq_n_u32(0xffff0000u)) : vshlq_n_u32(bits, 16));
    };
    return {one(v.a), one(v.b)};
  }
  static F i8_part(F v, int part) {
    const auto one = [part](float32x4_t x) {
      const int32x4_t top = vshlq_s32(vreinterpretq_s32_f32(x), vdupq_n_s32(24 - 8 * part));
      return vcvtq_f32_s32(vshrq_n_s32(top, 24));
    };
    return {one(v.a), one(v.b)};
  }

  // Return levels of packed formats as f32. load_nibbles(): the low (shift 0) or high (shift 4) nibbles of kLanes bytes
  // from p on. bits_at(): kBits bits of each 32-bit lane, from bit `at` on. spread_bits(): bit `first` + i of `word` in
  // lane i.
  static F load_nibbles(const uint8_t* p, int shift) {
    const uint8x8_t low = vand_u8(vshl_u8(vld1_u8(p), vdup_n_s8(static_cast<int8_t>(-shift))), vdup_n_u8(15));
    const uint16x8_t wide = vmovl_u8(low);
    return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide))), vcvtq_f32_u32(vmovl_high_u16(wide))};
  }
  template <int kBits>
  static F bits_at(F v, int at) {
    return low_bits(v, at, (1u << kBits) - 1);
  }
  static F spread_bits(uint32_t word, int first) {
    const uint32x4_t all = vdupq_n_u32(word >> first);
    const int32_t low[4] = {0, -1, -2, -3}, high[4] = {-4, -5, -6, -7};
    const auto one = [&](const int32_t* shifts) {
      return vcvtq_f32_u32(vandq_u32(vshlq_u32(all, vld1q_s32(shifts)), vdupq_n_u32(1)));
    };
    return {one(low), one(high)};
  }
  // Returns codes[level] for levels that are f32.
  template <int kBits>
  static F look_up(const float* codes, F level) {
    float lanes[kLanes];
    store(lanes, level);
    for (float& lane : lanes) lane = codes[static_cast<int>(lane)];
    return load(lanes);
  }
  // Read finite 8-bit floats with 4 exponent bits, times 2^-8. An f16 with the same bits has this value, because its
  // exponent is one bit longer. load_f8() reads kLanes values from p. f8_halves() returns the even or odd bytes of each
  // lane as two f16, for f16_part().
  static F load_f8(const uint8_t* p) { return widen_f16(f8_as_f16(vshll_n_u8(vld1_u8(p), 8))); }
  static F f8_halves(F v, bool odd) {
    const auto one = [odd](float32x4_t x) {
      const uint16x8_t bits = vreinterpretq_u16_f32(x);
      return vreinterpretq_f32_u16(f8_as_f16(odd ? bits : vshlq_n_u16(bits, 8)));
    };
    return {one(v.a), one(v.b)};
  }

  // For RoPE on neighbouring dims: split_pairs() splits a, b, which have x0 y0 x1 y1 ..., into x and y; join_pairs() is
  // its inverse.
  static void split_pairs(F a, F b, F& x, F& y) {
    x = {vuzp1q_f32(a.a, a.b), vuzp1q_f32(b.a, b.b)};
    y = {vuzp2q_f32(a.a, a.b), vuzp2q_f32(b.a, b.b)};
  }
  static void join_pairs(F x, F y, F& a, F& b) {
    a = {vzip1q_f32(x.a, y.a), vzip2q_f32(x.a, y.a)};
    b = {vzip1q_f32(x.b, y.b), vzip2q_f32(x.b, y.b)};
  }

 private:
  static F low_bits(F v, int shift, uint32_t mask) {
    const auto one = [&](float32x4_t x) {
      const uint32x4_t low = vshlq_u32(vreinterpretq_u32_f32(x), vdupq_n_s32(-shift));
      return vcvtq_f32_u32(vandq_u32(low, vdupq_n_u32(mask)));
    };
    return {one(v.a), one(v.b)};
  }
  static uint16x8_t f8_as_f16(uint16x8_t top) {  // top: the byte is the upper half of each word
    const uint16x8_t size = vandq_u16(vshrq_n_u16(top, 1), vdupq_n_u16(0x3f80));
    return vorrq_u16(vandq_u16(top, vdupq_n_u16(0x8000)), size);
  }
  static uint16x8_t load_words(const uint8_t* p) { return vreinterpretq_u16_u8(vld1q_u8(p)); }
  static void store_words(uint8_t* p, uint16x8_t words) { vst1q_u8(p, vreinterpretq_u8_u16(words)); }
};

}  // namespace
}  // namespace millrace
