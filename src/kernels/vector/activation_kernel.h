// Rounds activation rows (kernels/activation.h). Written for a type V of each instruction set; bit-identical to
// ref/activation_ref.cc, which explains the reason. V is a group of 32 values in registers:
//
//   V(x, i, n)                             values i to i + 31 of a row of n; zero beyond the row
//   uint32_t largest                       bits of their largest magnitude
//   write_levels(inverse, levels, sums)    the values times `inverse` as 32 int8, and the sum of each 16
//   uint32_t V::largest_of(x, n)           bits of the largest magnitude of a row
//   V::encode_f32(x, n, row)               the other kinds of rows, padded with zeros
//   V::encode_bf16(x, n, row)
//
// Included only by files compiled for one instruction set; everything is in an unnamed namespace.
#pragma once

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

inline bool usable(uint32_t largest) { return largest >= kTinyBits && largest < kInfinityBits; }

inline float scale_of_unusable(uint32_t largest) {
  return std::bit_cast<float>(largest >= kInfinityBits ? 0x7fc00000u : 0u);
}

// Writes a record whose levels are the values times `inverse`, rounded.
template <typename V>
inline void write_group(const V& values, float inverse, int shift, float scale, uint8_t* record) {
  int sums[2];
  values.write_levels(inverse, record, sums);
  const int sum = sums[0] + sums[1];
  *reinterpret_cast<int32_t*>(record + kQ8ShiftAt) = shift;
  *reinterpret_cast<float*>(record + kQ8ScaleAt) = scale;
  *reinterpret_cast<float*>(record + kQ8SumAt) = scale * static_cast<float>(sum);
  *reinterpret_cast<int32_t*>(record + kQ8StartAt) = -sum * (1 << kQ8StartBits);
  auto* negated_sums = reinterpret_cast<int32_t*>(record + kQ8SumsAt);
  negated_sums[0] = -sums[0];
  negated_sums[1] = -sums[1];
}

// Writes a record for values that are all 0 or not finite. `scale`: 0 or NaN.
inline void write_unusable(float scale, uint8_t* record) {
  std::memset(record, 0, kQ8GroupBytes);
  *reinterpret_cast<float*>(record + kQ8ScaleAt) = scale;
  *reinterpret_cast<float*>(record + kQ8SumAt) = scale;
}

template <typename V>
void encode_q8(const float* x, int64_t n, uint8_t* destination) {
  for (int64_t i = 0; i < n; i += kActivationGroup, destination += kQ8GroupBytes) {
    const V values(x, i, n);
    if (usable(values.largest)) {
      const float magnitude = std::bit_cast<float>(values.largest);
      write_group(values, 127.0f / magnitude, 0, magnitude / 127.0f, destination);
    } else {
      write_unusable(scale_of_unusable(values.largest), destination);
    }
  }
}

// Returns the row's unit.
template <typename V>
float encode_q8_shift(const float* x, int64_t n, uint8_t* destination) {
  const uint32_t row_largest = V::largest_of(x, n);
  if (!usable(row_largest)) {
    std::memset(destination, 0, static_cast<size_t>(q8_unit_at(n)));
    return scale_of_unusable(row_largest);
  }
  const float magnitude = std::bit_cast<float>(row_largest), inverse = 127.0f / magnitude;
  for (int64_t i = 0; i < n; i += kActivationGroup, destination += kQ8GroupBytes) {
    const V values(x, i, n);
    const int doublings = std::min(static_cast<int>((row_largest - values.largest) >> 23), kQ8MostShift);
    const int shift = kQ8MostShift - doublings;
    write_group(values, inverse * static_cast<float>(1 << doublings), shift, static_cast<float>(1 << shift),
                destination);
  }
  return magnitude / 127.0f / static_cast<float>(1 << kQ8MostShift);
}

// Encodes a row of q8 or q8_shift. Groups beyond the row are zeros.
template <typename V>
void encode_q8_row(Activation kind, const float* x, int64_t n, uint8_t* destination) {
  auto* unit = reinterpret_cast<float*>(destination + q8_unit_at(n));
  const int64_t written = (n + kActivationGroup - 1) / kActivationGroup * kQ8GroupBytes;
  std::memset(destination + written, 0, static_cast<size_t>(q8_unit_at(n) - written));
  if (kind == Activation::q8_shift) {
    *unit = encode_q8_shift<V>(x, n, destination);
  } else {
    encode_q8<V>(x, n, destination);
    *unit = 1;
  }
}

template <typename V>
void encode_activation(Activation kind, const float* x, int64_t n, uint8_t* destination) {
  if (is_int8(kind)) return encode_q8_row<V>(kind, x, n, destination);
  if (kind == Activation::bf16) return V::encode_bf16(x, n, reinterpret_cast<uint16_t*>(destination));
  V::encode_f32(x, n, reinterpret_cast<float*>(destination));
}

}  // namespace
}  // namespace millrace
