// Float matmul for NEON: 8 rows in two registers; BF16 pairs are widened one column at a time.
#include "kernels/arm/matmul_lanes_neon.h"
#include "kernels/families.h"

namespace millrace {
namespace {

struct F32Neon : Lanes8 {
  using V = F;
  static constexpr const char* kFormat = "f32";
  static constexpr Activation kActivation = Activation::f32;
  static constexpr int kStep = 1;
  static constexpr int kVectorBytes = 32;
  template <int part>
  static V load(const uint8_t* p) {
    return load_f32(p);
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    return broadcast_f32(p);
  }
  static F multiply_add(V w, V x, F acc) { return fma(w, x, acc); }
};

struct F16Neon : F32Neon {
  static constexpr const char* kFormat = "f16";
  static constexpr int kVectorBytes = 16;
  template <int part>
  static V load(const uint8_t* p) {
    const float16x8_t half = vreinterpretq_f16_u8(vld1q_u8(p));
    return {vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half)};
  }
};

struct Bf16Neon : Lanes8 {
  using V = F;
  static constexpr const char* kFormat = "bf16";
  static constexpr Activation kActivation = Activation::bf16;
  static constexpr int kStep = 2;
  static constexpr int kColumnParts = 2;
  static constexpr int kVectorBytes = 32;
  template <int part>
  static float32x4_t widen(uint32x4_t pairs) {
    if (part == 0) return vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    return vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
  }
  template <int part>
  static V load(const uint8_t* p) {
    return {widen<part>(vreinterpretq_u32_u8(vld1q_u8(p))), widen<part>(vreinterpretq_u32_u8(vld1q_u8(p + 16)))};
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    const float32x4_t x = widen<part>(vld1q_dup_u32(reinterpret_cast<const uint32_t*>(p)));
    return {x, x};
  }
  static F multiply_add(V w, V x, F acc) { return fma(w, x, acc); }
};

// Two columns of 8 rows, or of one token in every lane.
struct Pair {
  Lanes8::F even, odd;
};

// Converts E4M3 codes to f32 via f16: shifted into place an E4M3 is the f16 of 2^-8 times its value, including
// subnormals. The fold's scale restores the factor exactly. NaN codes are already in the scale (pack_f8_panels).
struct F8Neon : Lanes8 {
  using V = Pair;
  static constexpr int kTile = 8;
  static constexpr int kPanels = 1;
  static constexpr const char* kLayout = "panels8";
  static V broadcast(const uint8_t* p) { return {broadcast_f32(p), broadcast_f32(p + 4)}; }
  static F multiply_add(V w, V x, F acc) { return fma(w.odd, x.odd, fma(w.even, x.even, acc)); }
  static F load_scales(const uint8_t* p) {
    const F scale = load_f32(p);
    return {vmulq_n_f32(scale.a, 256.0f), vmulq_n_f32(scale.b, 256.0f)};
  }
  static F widen(uint8x8_t codes) {
    const uint16x8_t high = vshll_n_u8(codes, 8);
    const uint16x8_t magnitude = vshrq_n_u16(vandq_u16(high, vdupq_n_u16(0x7f00)), 1);
    const float16x8_t half = vreinterpretq_f16_u16(vorrq_u16(magnitude, vandq_u16(high, vdupq_n_u16(0x8000))));
    return {vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half)};
  }
  static void load_quad(const uint8_t* p, V (&out)[2]) {
    for (int i = 0; i < 2; ++i) out[i] = {widen(vld1_u8(p + 16 * i)), widen(vld1_u8(p + 16 * i + 8))};
  }
};

}  // namespace

void add_matmul_float_neon(KernelTable& table) {
  add_float_kernel<F32Neon>(table);
  add_float_kernel<F16Neon>(table);
  add_float_kernel<Bf16Neon>(table);
  add_f8_kernel<F8Neon>(table);
}

}  // namespace millrace
