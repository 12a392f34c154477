// Rounds activation rows to f32, bf16 or q8 (layout: kernels/activation.h). Portable; every instruction set gives the
// same bits: magnitudes are compared as integers, and the scale, its inverse and the rounding are single IEEE
// operations.
#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/activation.h"
#include "kernels/families.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr uint32_t kTinyBits = 0x0d800000;      // 2^-100: smaller groups become zeros
constexpr uint32_t kInfinityBits = 0x7f800000;  // and above: NaN

// Round to nearest, ties to even, for |value| < 2^22.
inline int round_even(float value) { return static_cast<int>((value + 12582912.0f) - 12582912.0f); }

// One group of n <= 32 values (the rest zero) into its record.
void encode_group(const float* x, int64_t n, uint8_t* record) {
  auto* q = reinterpret_cast<int8_t*>(record);
  auto* scale = reinterpret_cast<float*>(record + kQ8ScaleAt);
  auto* offset = reinterpret_cast<float*>(record + kQ8OffsetAt);
  auto* negated_sums = reinterpret_cast<int32_t*>(record + kQ8SumsAt);
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  std::memset(record, 0, kQ8GroupBytes);
  if (largest < kTinyBits) return;
  if (largest >= kInfinityBits) {
    *scale = *offset = std::bit_cast<float>(0x7fc00000u);
    return;
  }
  float magnitude = std::bit_cast<float>(largest);
  float inverse = 127.0f / magnitude;
  for (int64_t i = 0; i < n; ++i) {
    int level = round_even(x[i] * inverse);
    q[i] = static_cast<int8_t>(level);
    negated_sums[i / 16] -= level;
  }
  *scale = magnitude / 127.0f;
  *offset = *scale * static_cast<float>(-(negated_sums[0] + negated_sums[1]));
}

void encode_q8(const float* x, int64_t n, uint8_t* destination) {
  int64_t padded = padded_values(n);
  for (int64_t i = 0; i < padded; i += kActivationGroup, destination += kQ8GroupBytes) {
    encode_group(x + i, std::clamp<int64_t>(n - i, 0, kActivationGroup), destination);
  }
}

void encode_activation(Activation kind, const float* x, int64_t n, uint8_t* destination) {
  int64_t padded = padded_values(n);
  switch (kind) {
    case Activation::f32: {
      auto* values = reinterpret_cast<float*>(destination);
      std::memcpy(values, x, static_cast<size_t>(n) * 4);
      std::fill(values + n, values + padded, 0.0f);
      return;
    }
    case Activation::bf16: {
      auto* values = reinterpret_cast<uint16_t*>(destination);
      for (int64_t i = 0; i < n; ++i) values[i] = f32_to_bf16(x[i]);
      std::fill(values + n, values + padded, uint16_t{0});
      return;
    }
    case Activation::q8: encode_q8(x, n, destination); return;
  }
}

}  // namespace

void add_activation_ref(KernelTable& table) { table.encode_activation = encode_activation; }

}  // namespace millrace
