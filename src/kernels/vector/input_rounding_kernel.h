// Rounds groups of inputs to the numbers of a small format, as f32 values or as int8 records for products.
// Bit-identical to the reference. Include after a simd_*.h and its part_simd_*.h.
//
// Numbers of a float format with m mantissa bits are multiples of u = 2^(e - m), where e is the value's exponent, but
// at least the format's smallest one. Adding 1.5 * 2^23 * u and subtracting it again rounds to a multiple of u, ties to
// even.
#pragma once

#include "kernels/activation.h"
#include "kernels/part_kernels.h"

namespace millrace {
namespace {

// Loads a vector of x from i on; values from n on are zero.
inline Simd::F values_at(const float* x, int64_t i, int64_t n) {
  if (i + Simd::kLanes <= n) return Simd::load(x + i);
  return i < n ? Simd::load_n(x + i, n - i) : Simd::zero();
}

struct GroupNumbers {
  GroupNumbers(const RoundedNumbers& to, const float* x, int64_t n) {
    constexpr int kAtOnce = 4;
    constexpr int64_t kStep = kAtOnce * Simd::kLanes;
    Simd::F most[kAtOnce], none[kAtOnce];  // none: 0, or NaN if a value is not finite
    for (int j = 0; j < kAtOnce; ++j) most[j] = none[j] = Simd::zero();
    const auto take = [&](Simd::F v, int j) {
      most[j] = Simd::max(Simd::abs(v), most[j]);
      none[j] = Simd::add(none[j], Simd::sub(v, v));
    };
    int64_t i = 0;
    for (; i + kStep <= n; i += kStep)
      for (int j = 0; j < kAtOnce; ++j) take(Simd::load(x + i + j * Simd::kLanes), j);
    for (; i < n; i += Simd::kLanes) take(values_at(x, i, n), 0);
    const bool finite = !Simd::any_nan(Simd::add(Simd::add(none[0], none[1]), Simd::add(none[2], none[3])));
    const float magnitude = Simd::largest(Simd::max(Simd::max(most[0], most[1]), Simd::max(most[2], most[3])));
    usable = finite && magnitude >= 0x1p-100f;
    const float range = to.clip * magnitude;
    inverse = Simd::set(to.largest / range);
    scale = usable ? range / to.largest : finite ? 0.0f : __builtin_nanf("");
    largest = Simd::set(to.largest);
    least = Simd::power_of_two(Simd::set(static_cast<float>(to.least_exponent)));
    spread = Simd::mul(Simd::set(0x1.8p23f), Simd::power_of_two(Simd::set(static_cast<float>(-to.mantissa_bits))));
  }
  Simd::F number(Simd::F x) const {
    const Simd::F v = Simd::max(Simd::sub(Simd::zero(), largest), Simd::min(largest, Simd::mul(x, inverse)));
    const Simd::F steps = Simd::mul(Simd::max(PartSimd::exponent(v), least), spread);
    return Simd::sub(Simd::add(v, steps), steps);
  }

  Simd::F inverse, largest, least, spread;
  float scale;
  bool usable;
};

inline void round_group(const RoundedNumbers& numbers, float* x, int64_t n) noexcept {
  const GroupNumbers by(numbers, x, n);
  const Simd::F scale = Simd::set(by.scale);
  const auto value = [&](Simd::F v) { return by.usable ? Simd::mul(by.number(v), scale) : scale; };
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(x + i, value(Simd::load(x + i)));
  if (i < n) Simd::store_n(x + i, value(Simd::load_n(x + i, n - i)), n - i);
}

inline float encode_group(const RoundedNumbers& numbers, const float* x, int64_t n, bool unit_scale,
                          uint8_t* records) noexcept {
  constexpr int kVectors = 16 / Simd::kLanes;
  const GroupNumbers by(numbers, x, n);
  const Simd::F factor = Simd::set(by.usable ? numbers.factor : 0.0f), zero = Simd::zero();
  const float scale = by.scale / numbers.factor, own = unit_scale ? 1.0f : scale;
  for (int64_t first = 0; first < n; first += kActivationGroup, records += kQ8GroupBytes) {
    int sums[2];
    for (int half = 0; half < 2; ++half) {
      Simd::F levels[kVectors];
      for (int j = 0; j < kVectors; ++j) {
        const Simd::F v = values_at(x, first + 16 * half + j * Simd::kLanes, n);
        levels[j] = by.usable ? Simd::mul(by.number(v), factor) : zero;
      }
      sums[half] = PartSimd::store_levels16(records + 16 * half, levels);
    }
    const int sum = sums[0] + sums[1];
    *reinterpret_cast<int32_t*>(records + kQ8ShiftAt) = 0;
    *reinterpret_cast<float*>(records + kQ8ScaleAt) = own;
    *reinterpret_cast<float*>(records + kQ8SumAt) = own * static_cast<float>(sum);
    *reinterpret_cast<int32_t*>(records + kQ8StartAt) = -sum * (1 << kQ8StartBits);
    auto* negated_sums = reinterpret_cast<int32_t*>(records + kQ8SumsAt);
    negated_sums[0] = -sums[0];
    negated_sums[1] = -sums[1];
  }
  return scale;
}

inline void shift_scale(const float* x, const float* shift, const float* scale, int64_t n, float* out) noexcept {
  const auto change = [&](Simd::F v, int64_t i) {
    if (shift) v = Simd::sub(v, values_at(shift, i, n));
    return scale ? Simd::mul(v, values_at(scale, i, n)) : v;
  };
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(out + i, change(Simd::load(x + i), i));
  if (i < n) Simd::store_n(out + i, change(Simd::load_n(x + i, n - i), i), n - i);
}

}  // namespace
}  // namespace millrace
