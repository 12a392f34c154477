// Products with any codebook for NEON.
#include <arm_neon.h>

#include "kernels/families.h"
#include "kernels/vector/matmul_codebook.h"

namespace millrace {
namespace {

struct CodebookNeon {
  struct V {
    float32x4_t v[4];  // lanes 0 to 3, 4 to 7 ...
  };
  using Four = float32x4_t;
  static constexpr int kLanes = 16;
  static constexpr int kTile = 1;  // 16 registers of sums of the 32

  static V zero() { return {{four_zeros(), four_zeros(), four_zeros(), four_zeros()}}; }
  static V load(const float* p) { return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}}; }
  static V fma(const V& x, const V& y, const V& z) {
    V out;
    for (int i = 0; i < 4; ++i) out.v[i] = vfmaq_f32(z.v[i], x.v[i], y.v[i]);
    return out;
  }

  static Four four_zeros() { return vdupq_n_f32(0); }
  static Four load_four(const float* p, int64_t count) {
    if (count >= 4) return vld1q_f32(p);
    float lanes[4] = {};
    for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
    return vld1q_f32(lanes);
  }
  static void store_four(float* p, Four v, int64_t count) {
    if (count >= 4) return vst1q_f32(p, v);
    float lanes[4];
    vst1q_f32(lanes, v);
    for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
  }
  // Lanes i and i + 8, then + 4, + 2, + 1.
  static float32x4_t fold(const V& x) { return vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3])); }
  static float32x4_t fold_two(float32x4_t x, float32x4_t y) {  // two sums of each
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y))),
                     vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y))));
  }
  static Four add_sums(Four sum, const V* v) {
    return vaddq_f32(sum, vpaddq_f32(fold_two(fold(v[0]), fold(v[1])), fold_two(fold(v[2]), fold(v[3]))));
  }

  // Eight weights, as entries of a codebook are stored.
  struct Eight {
    float32x4_t low, high;
  };
  static Eight eight_zeros() { return {four_zeros(), four_zeros()}; }
  static Eight load_eight(const uint16_t* p) {
    const float16x8_t v = vreinterpretq_f16_u16(vld1q_u16(p));
    return {vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)};
  }
  static Eight add_eights(Eight a, Eight b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
  static Eight scale_eight(Eight a, float by) { return {vmulq_n_f32(a.low, by), vmulq_n_f32(a.high, by)}; }
  static void store_eight(float* p, Eight v) {
    vst1q_f32(p, v.low);
    vst1q_f32(p + 4, v.high);
  }
};

}  // namespace

void add_matmul_codebook_neon(KernelTable& table) { add_codebook_kernels<CodebookNeon>(table); }

}  // namespace millrace
