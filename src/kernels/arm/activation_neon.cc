// Rounds activation rows for NEON; bit-identical to ref/activation_ref.cc, which explains why.
#include <arm_neon.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/activation.h"
#include "kernels/families.h"

namespace millrace {
namespace {

constexpr uint32_t kTinyBits = 0x0d800000;  // 2^-100
constexpr uint32_t kInfinityBits = 0x7f800000;

// 4 values of a row of n from position i; zero beyond the row.
inline float32x4_t load_values(const float* x, int64_t i, int64_t n) {
  if (i + 4 <= n) return vld1q_f32(x + i);
  float lanes[4] = {};
  for (int64_t j = i; j < n; ++j) lanes[j - i] = x[j];
  return vld1q_f32(lanes);
}

inline uint32x4_t magnitude_bits(float32x4_t v) { return vreinterpretq_u32_f32(vabsq_f32(v)); }

// 32 values and the bits of their largest magnitude.
struct Values {
  float32x4_t v[8];
  uint32_t largest;
  Values(const float* x, int64_t i, int64_t n) {
    uint32x4_t magnitudes = vdupq_n_u32(0);
    for (int j = 0; j < 8; ++j) {
      v[j] = load_values(x, i + 4 * j, n);
      magnitudes = vmaxq_u32(magnitudes, magnitude_bits(v[j]));
    }
    largest = vmaxvq_u32(magnitudes);
  }
};

inline bool usable(uint32_t largest) { return largest >= kTinyBits && largest < kInfinityBits; }

// Writes a record; the levels are the values times `inverse`.
inline void write_group(const Values& values, float inverse, int shift, float scale, uint8_t* record) {
  int sums[2];
  for (int half = 0; half < 2; ++half) {
    int16x4_t words[4];
    for (int j = 0; j < 4; ++j) words[j] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(values.v[4 * half + j], inverse)));
    const int8x8_t low = vmovn_s16(vcombine_s16(words[0], words[1]));
    const int8x8_t high = vmovn_s16(vcombine_s16(words[2], words[3]));
    const int8x16_t bytes = vcombine_s8(low, high);
    vst1q_u8(record + 16 * half, vreinterpretq_u8_s8(bytes));
    sums[half] = vaddlvq_s8(bytes);
  }
  const int sum = sums[0] + sums[1];
  *reinterpret_cast<int32_t*>(record + kQ8ShiftAt) = shift;
  *reinterpret_cast<float*>(record + kQ8ScaleAt) = scale;
  *reinterpret_cast<float*>(record + kQ8SumAt) = scale * static_cast<float>(sum);
  *reinterpret_cast<int32_t*>(record + kQ8StartAt) = -sum * (1 << kQ8StartBits);
  auto* negated_sums = reinterpret_cast<int32_t*>(record + kQ8SumsAt);
  negated_sums[0] = -sums[0];
  negated_sums[1] = -sums[1];
}

// Writes a record of zeros or NaN.
inline void write_unusable(float scale, uint8_t* record) {
  std::memset(record, 0, kQ8GroupBytes);
  *reinterpret_cast<float*>(record + kQ8ScaleAt) = scale;
  *reinterpret_cast<float*>(record + kQ8SumAt) = scale;
}

inline float scale_of_unusable(uint32_t largest) {
  return std::bit_cast<float>(largest >= kInfinityBits ? 0x7fc00000u : 0u);
}

void encode_q8(const float* x, int64_t n, uint8_t* destination) {
  for (int64_t i = 0; i < n; i += kActivationGroup, destination += kQ8GroupBytes) {
    const Values values(x, i, n);
    if (usable(values.largest)) {
      const float magnitude = std::bit_cast<float>(values.largest);
      write_group(values, 127.0f / magnitude, 0, magnitude / 127.0f, destination);
    } else {
      write_unusable(scale_of_unusable(values.largest), destination);
    }
  }
}

// Returns the row's unit.
float encode_q8_shift(const float* x, int64_t n, uint8_t* destination) {
  uint32x4_t magnitudes = vdupq_n_u32(0);
  for (int64_t i = 0; i < n; i += 4) magnitudes = vmaxq_u32(magnitudes, magnitude_bits(load_values(x, i, n)));
  const uint32_t row_largest = vmaxvq_u32(magnitudes);
  if (!usable(row_largest)) {
    std::memset(destination, 0, static_cast<size_t>(q8_unit_at(n)));
    return scale_of_unusable(row_largest);
  }
  const float magnitude = std::bit_cast<float>(row_largest), inverse = 127.0f / magnitude;
  for (int64_t i = 0; i < n; i += kActivationGroup, destination += kQ8GroupBytes) {
    const Values values(x, i, n);
    const int doublings = std::min(static_cast<int>((row_largest - values.largest) >> 23), kQ8MostShift);
    const int shift = kQ8MostShift - doublings;
    write_group(values, inverse * static_cast<float>(1 << doublings), shift, static_cast<float>(1 << shift),
                destination);
  }
  return magnitude / 127.0f / static_cast<float>(1 << kQ8MostShift);
}

// Either kind; whole groups beyond the row are zeros.
void encode_q8_row(Activation kind, const float* x, int64_t n, uint8_t* destination) {
  auto* unit = reinterpret_cast<float*>(destination + q8_unit_at(n));
  const int64_t written = (n + kActivationGroup - 1) / kActivationGroup * kQ8GroupBytes;
  std::memset(destination + written, 0, static_cast<size_t>(q8_unit_at(n) - written));
  if (kind == Activation::q8_shift) {
    *unit = encode_q8_shift(x, n, destination);
  } else {
    encode_q8(x, n, destination);
    *unit = 1;
  }
}

// The upper 16 bits of each lane, ties to even; NaNs become quiet (tensor/half.h f32_to_bf16).
inline uint16x4_t round_bf16(float32x4_t v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16);
}

void encode_bf16(const float* x, int64_t n, uint8_t* destination) {
  auto* values = reinterpret_cast<uint16_t*>(destination);
  const int64_t padded = padded_values(n);
  for (int64_t i = 0; i < padded; i += 4) vst1_u16(values + i, round_bf16(load_values(x, i, n)));
}

void encode_activation(Activation kind, const float* x, int64_t n, uint8_t* destination) {
  if (is_int8(kind)) return encode_q8_row(kind, x, n, destination);
  if (kind == Activation::bf16) return encode_bf16(x, n, destination);
  auto* values = reinterpret_cast<float*>(destination);
  const int64_t padded = padded_values(n);
  for (int64_t i = 0; i < padded; i += 4) vst1q_f32(values + i, load_values(x, i, n));
}

}  // namespace

void add_activation_neon(KernelTable& table) { table.encode_activation = encode_activation; }

}  // namespace millrace
