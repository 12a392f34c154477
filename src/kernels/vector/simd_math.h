// exp, tanh, sigmoid and erfc in vectors of Simd. Include after a simd_*.h. Every instruction set computes the same
// polynomials, with errors of at most about 2 units in the last place.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

template <int kCount>
inline Simd::F polynomial(Simd::F x, const float (&highest_first)[kCount]) {
  Simd::F y = Simd::set(highest_first[0]);
  for (int i = 1; i < kCount; ++i) y = Simd::fma(y, x, Simd::set(highest_first[i]));
  return y;
}

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2) / 2. exp(0) is exactly 1, exp(-inf) is exactly 0, and exp(NaN)
// is NaN. 2^n is multiplied in two factors, so that results may be subnormal or infinite.
inline Simd::F exp(Simd::F x) {
  constexpr float kExp[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                            4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};  // (exp(r) - 1 - r) / r^2
  x = Simd::min(Simd::set(89.0f), Simd::max(Simd::set(-104.0f), x));
  Simd::F n = Simd::round(Simd::mul(x, Simd::set(1.44269504088896341f)));
  Simd::F r = Simd::fnma(n, Simd::set(0.693359375f), x);  // ln 2 in two parts, the first exact
  r = Simd::fnma(n, Simd::set(-2.12194440e-4f), r);
  Simd::F y = Simd::fma(polynomial(r, kExp), Simd::mul(r, r), r);
  y = Simd::add(y, Simd::set(1.0f));
  Simd::F half = Simd::half_floor(n);
  return Simd::mul(Simd::mul(y, Simd::power_of_two(half)), Simd::power_of_two(Simd::sub(n, half)));
}

inline float exp_one(float x) { return Simd::first(exp(Simd::set(x))); }

// tanh(x) = x + x^3 P(x^2) if |x| < 0.625, otherwise 1 - 2 / (exp(2 |x|) + 1) with the sign of x.
inline Simd::F tanh(Simd::F x) {
  constexpr float kTanh[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                             -3.33332819422e-1f};
  Simd::F magnitude = Simd::abs(x);
  Simd::F square = Simd::mul(x, x);
  Simd::F small = Simd::fma(Simd::mul(polynomial(square, kTanh), square), x, x);
  Simd::F power = Simd::add(exp(Simd::add(magnitude, magnitude)), Simd::set(1.0f));
  Simd::F large = Simd::sub(Simd::set(1.0f), Simd::div(Simd::set(2.0f), power));
  return Simd::if_less(magnitude, Simd::set(0.625f), small, Simd::copy_sign(large, x));
}

// Returns x / (1 + exp(-z)). This is SiLU for z = x, and the tanh form of GELU for z = 2 u.
inline Simd::F times_sigmoid(Simd::F x, Simd::F z) {
  return Simd::div(x, Simd::add(Simd::set(1.0f), exp(Simd::sub(Simd::zero(), z))));
}

// erfc(x) = exp(-x^2) t Q(t) for x >= 0, with t = 1 / (1 + x / 2). The polynomial Q approximates erfc(x) exp(x^2) / t
// with an error of 6e-9; it was fitted at Chebyshev nodes.
inline Simd::F erfc_positive(Simd::F x) {
  constexpr float kErfc[] = {0.04121590693f, -0.2227723292f,  0.4622603406f,  -0.4078488348f,
                             0.08775563737f, -0.03184982245f, 0.08237888152f, 0.1782110607f,
                             0.2464214222f,  0.2821344273f,   0.2820933151f};
  Simd::F t = Simd::div(Simd::set(1.0f), Simd::fma(x, Simd::set(0.5f), Simd::set(1.0f)));
  Simd::F decay = exp(Simd::sub(Simd::zero(), Simd::mul(x, x)));
  return Simd::mul(Simd::mul(decay, t), polynomial(t, kErfc));
}

}  // namespace
}  // namespace millrace
