// Rounds activation rows to f32, bf16 or q8 (layout: kernels/activation.h). Portable; every instruction set gives the
// same bits, because magnitudes are compared as integers, and the scale, its inverse and the rounding are single IEEE
// operations.
#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/activation.h"
#include "kernels/families.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr uint32_t kTinyBits = 0x0d800000;      // 2^-100: zeros below this
constexpr uint32_t kInfinityBits = 0x7f800000;  // NaN from here on

// Round to nearest, ties to even, for |value| < 2^22.
inline int round_even(float value) { return static_cast<int>((value + 12582912.0f) - 12582912.0f); }

// Bits of the largest magnitude.
uint32_t largest_of(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return largest;
}

// A group's divisor and its representation in the record.
struct GroupScale {
  float inverse = 0;
  int shift = 0;
  float scale = 0;
};

// q8: the group's own scale.
GroupScale own_scale(uint32_t largest) {
  if (largest < kTinyBits) return {};
  if (largest >= kInfinityBits) return {.scale = std::bit_cast<float>(0x7fc00000u)};
  const float magnitude = std::bit_cast<float>(largest);
  return {.inverse = 127.0f / magnitude, .scale = magnitude / 127.0f};
}

// q8_shift: a power of two times the row's scale. The difference of the bits is a logarithm: its upper part is the
// number of times the group's largest value could be doubled.
GroupScale shifted_scale(uint32_t largest, uint32_t row_largest) {
  const uint32_t doublings = std::min<uint32_t>((row_largest - largest) >> 23, kQ8MostShift);
  const int shift = kQ8MostShift - static_cast<int>(doublings);
  return {.inverse = 127.0f / std::bit_cast<float>(row_largest) * static_cast<float>(1u << doublings),
          .shift = shift,
          .scale = static_cast<float>(1 << shift)};
}

// Encodes one group of n <= 32 values into its zero-initialized record.
void encode_group(const float* x, int64_t n, const GroupScale& by, uint8_t* record) {
  auto* q = reinterpret_cast<int8_t*>(record);
  auto* negated_sums = reinterpret_cast<int32_t*>(record + kQ8SumsAt);
  for (int64_t i = 0; i < n && by.inverse != 0; ++i) {
    int level = round_even(x[i] * by.inverse);
    q[i] = static_cast<int8_t>(level);
    negated_sums[i / 16] -= level;
  }
  const int negated = negated_sums[0] + negated_sums[1];
  *reinterpret_cast<int32_t*>(record + kQ8ShiftAt) = by.shift;
  *reinterpret_cast<float*>(record + kQ8ScaleAt) = by.scale;
  *reinterpret_cast<float*>(record + kQ8SumAt) = by.scale * static_cast<float>(-negated);
  *reinterpret_cast<int32_t*>(record + kQ8StartAt) = negated * (1 << kQ8StartBits);
}

void encode_q8(Activation kind, const float* x, int64_t n, uint8_t* destination) {
  std::memset(destination, 0, static_cast<size_t>(q8_unit_at(n)));
  auto* unit = reinterpret_cast<float*>(destination + q8_unit_at(n));
  const uint32_t row_largest = largest_of(x, n);
  const bool shifted = kind == Activation::q8_shift;
  *unit = 1;
  if (shifted) {
    *unit = own_scale(row_largest).scale / static_cast<float>(1 << kQ8MostShift);
    if (row_largest < kTinyBits || row_largest >= kInfinityBits) return;
  }
  for (int64_t i = 0; i < n; i += kActivationGroup, destination += kQ8GroupBytes) {
    const int64_t count = std::min<int64_t>(n - i, kActivationGroup);
    const uint32_t largest = largest_of(x + i, count);
    encode_group(x + i, count, shifted ? shifted_scale(largest, row_largest) : own_scale(largest), destination);
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
    case Activation::q8:
    case Activation::q8_shift: encode_q8(kind, x, n, destination); return;
  }
}

}  // namespace

void add_activation_ref(KernelTable& table) { table.encode_activation = encode_activation; }

}  // namespace millrace
