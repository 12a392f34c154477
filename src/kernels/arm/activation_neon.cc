// Rounding of activation rows for NEON.
#include <arm_neon.h>

#include "kernels/vector/activation_kernel.h"

namespace millrace {
namespace {

// 4 values of a row of n from position i; zero beyond the row.
inline float32x4_t load_values(const float* x, int64_t i, int64_t n) {
  if (i + 4 <= n) return vld1q_f32(x + i);
  float lanes[4] = {};
  for (int64_t j = i; j < n; ++j) lanes[j - i] = x[j];
  return vld1q_f32(lanes);
}

inline uint32x4_t magnitude_bits(float32x4_t v) { return vreinterpretq_u32_f32(vabsq_f32(v)); }

// The upper 16 bits of each lane, ties to even; NaNs become quiet (tensor/half.h f32_to_bf16).
inline uint16x4_t round_bf16(float32x4_t v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16);
}

struct ValuesNeon {
  float32x4_t v[8];
  uint32_t largest;

  ValuesNeon(const float* x, int64_t i, int64_t n) {
    uint32x4_t magnitudes = vdupq_n_u32(0);
    for (int j = 0; j < 8; ++j) {
      v[j] = load_values(x, i + 4 * j, n);
      magnitudes = vmaxq_u32(magnitudes, magnitude_bits(v[j]));
    }
    largest = vmaxvq_u32(magnitudes);
  }

  void write_levels(float inverse, uint8_t* levels, int (&sums)[2]) const {
    for (int half = 0; half < 2; ++half) {
      int16x4_t words[4];
      for (int j = 0; j < 4; ++j) words[j] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[4 * half + j], inverse)));
      const int8x8_t low = vmovn_s16(vcombine_s16(words[0], words[1]));
      const int8x8_t high = vmovn_s16(vcombine_s16(words[2], words[3]));
      const int8x16_t bytes = vcombine_s8(low, high);
      vst1q_u8(levels + 16 * half, vreinterpretq_u8_s8(bytes));
      sums[half] = vaddlvq_s8(bytes);
    }
  }

  static uint32_t largest_of(const float* x, int64_t n) {
    uint32x4_t magnitudes = vdupq_n_u32(0);
    for (int64_t i = 0; i < n; i += 4) magnitudes = vmaxq_u32(magnitudes, magnitude_bits(load_values(x, i, n)));
    return vmaxvq_u32(magnitudes);
  }
  static void encode_f32(const float* x, int64_t n, float* row) {
    const int64_t padded = padded_values(n);
    for (int64_t i = 0; i < padded; i += 4) vst1q_f32(row + i, load_values(x, i, n));
  }
  static void encode_bf16(const float* x, int64_t n, uint16_t* row) {
    const int64_t padded = padded_values(n);
    for (int64_t i = 0; i < padded; i += 4) vst1_u16(row + i, round_bf16(load_values(x, i, n)));
  }
};

}  // namespace

void add_activation_neon(KernelTable& table) { table.encode_activation = encode_activation<ValuesNeon>; }

}  // namespace millrace
