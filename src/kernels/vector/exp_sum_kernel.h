// exp_sum() and exp_sum_coarse() in the compiler's vector types, from one source for every instruction set. Vectors are
// as long as registers, because compilers split comparisons of longer vectors into single numbers. exp(v) = 2^n exp(r),
// n = round(v / ln 2), |r| <= ln(2) / 2. exp(r) is a Taylor polynomial: of degree 10 in doubles (relative error 3e-13),
// of degree 7 in floats (5e-9).
#pragma once

#include <cstring>

#include "kernels/ops.h"

namespace millrace {
namespace {

inline double exp_sum(const float* x, double shift, int64_t n) noexcept {
#if defined(__AVX512F__)
  constexpr int64_t kLanes = 8;
#elif defined(__AVX2__)
  constexpr int64_t kLanes = 4;
#else
  constexpr int64_t kLanes = 2;
#endif
  using Floats = float __attribute__((vector_size(4 * kLanes)));
  using Doubles = double __attribute__((vector_size(8 * kLanes)));
  using Bits = int64_t __attribute__((vector_size(8 * kLanes)));
  constexpr double kTaylor[] = {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                                1.0 / 24,      1.0 / 6,      0.5,         1.0,        1.0};  // the highest power first
  // Adding and subtracting it rounds to an integer; after the addition, the low bits hold the integer.
  constexpr double kRound = 0x1.8p52;
  const Doubles lowest = Doubles{} - 700, zero = {};
  Doubles sum = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    Floats part;
    if (n - i >= kLanes) {
      std::memcpy(&part, x + i, sizeof(part));
    } else {
      part = Floats{} - __builtin_inff();
      std::memcpy(&part, x + i, static_cast<size_t>(n - i) * sizeof(float));
    }
    Doubles v = __builtin_convertvector(part, Doubles) - shift;
    v = v > lowest ? v : lowest;  // also for NaN; exp(-700) is 1e-304
    v = v < zero ? v : zero;      // infinity counts as the largest float
    const Doubles rounded = v * 1.44269504088896340736 + kRound;
    const Doubles whole = rounded - kRound;
    Doubles r = v - whole * 0x1.62e42feep-1;  // ln 2 is split into two parts; products with the first are exact
    r = r - whole * 0x1.a39ef35793c76p-33;
    Doubles y = zero + kTaylor[0];
    for (int k = 1; k < 11; ++k) y = y * r + kTaylor[k];
    sum += reinterpret_cast<Doubles>(reinterpret_cast<Bits>(y) + (reinterpret_cast<Bits>(rounded) << 52));
  }
  double total = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

// Terms have a relative error of at most 3e-7, which is due to roundings in the polynomial; the rounding error of x -
// shift is compensated in the reduced argument. Blocks of 256 terms are summed in floats, in two levels of four sums,
// and the blocks in doubles; this adds an error of 4e-7.
inline double exp_sum_coarse(const float* x, float shift, int64_t n) noexcept {
#if defined(__AVX512F__)
  constexpr int64_t kLanes = 16;
#elif defined(__AVX2__)
  constexpr int64_t kLanes = 8;
#else
  constexpr int64_t kLanes = 4;
#endif
  using Floats = float __attribute__((vector_size(4 * kLanes)));
  using Bits = int32_t __attribute__((vector_size(4 * kLanes)));
  constexpr float kTaylor[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  constexpr float kRound = 0x1.8p23f;
  constexpr int64_t kParts = 4;
  const Floats lowest = Floats{} - 86, zero = {}, top = zero + shift;
  const auto term = [&](Floats part) {
    Floats v = part - top;
    const Floats back = v - part;
    Floats lost = (part - (v - back)) - (top + back);
    // False for NaN and -inf, which become `lowest`, and for +inf, which becomes zero.
    const Bits plain = (v > lowest) & (v <= zero);
    lost = plain ? lost : zero;
    v = plain ? v : (v > zero ? zero : lowest);
    const Floats rounded = v * 1.44269504f + kRound;
    const Floats whole = rounded - kRound;
    Floats r = v - whole * 0x1.62e4p-1f;  // ln 2 in two parts, products with the first are exact
    r = r - (whole * 0x1.7f7d1cp-20f - lost);
    Floats y = zero + kTaylor[0];
    for (int k = 1; k < 8; ++k) y = y * r + kTaylor[k];
    return reinterpret_cast<Floats>(reinterpret_cast<Bits>(y) + (reinterpret_cast<Bits>(rounded) << 23));
  };
  double total = 0;
  for (int64_t at = 0; at < n;) {
    Floats sums[kParts] = {};
    const int64_t end = at + 256 < n ? at + 256 : n;
    for (int part = 0; at < end; at += kLanes, part = (part + 1) % kParts) {
      Floats values;
      if (n - at >= kLanes) {
        std::memcpy(&values, x + at, sizeof(values));
      } else {
        values = Floats{} - __builtin_inff();
        std::memcpy(&values, x + at, static_cast<size_t>(n - at) * sizeof(float));
      }
      sums[part] += term(values);
    }
    const Floats sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int64_t lane = 0; lane < kLanes; ++lane) total += static_cast<double>(sum[lane]);
  }
  return total;
}

}  // namespace
}  // namespace millrace
