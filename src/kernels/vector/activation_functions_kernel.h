// SiLU, GELU (tanh and erf forms), ReLU and soft-cap in vectors, gated and in place. Include after
// simd_math.h. Each value's result depends on that value alone.
#pragma once

#include "kernels/ops.h"

namespace millrace {
namespace {

struct Silu {
  static Simd::F of(Simd::F x) { return times_sigmoid(x, x); }
};

// 0.5 x (1 + tanh u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
struct GeluTanh {
  static Simd::F of(Simd::F x) {
    const Simd::F cubic = Simd::fma(Simd::mul(x, x), Simd::set(0.044715f), Simd::set(1.0f));
    return times_sigmoid(x, Simd::mul(Simd::mul(x, cubic), Simd::set(1.5957691216057308f)));
  }
};

// x / 2 erfc(-x / sqrt 2), with erfc(-a) = 2 - erfc(a)
struct GeluErf {
  static Simd::F of(Simd::F x) {
    const Simd::F tail = erfc_positive(Simd::mul(Simd::abs(x), Simd::set(0.70710678118654752f)));
    const Simd::F twice = Simd::if_less(x, Simd::zero(), tail, Simd::sub(Simd::set(2.0f), tail));
    return Simd::mul(Simd::mul(x, Simd::set(0.5f)), twice);
  }
};

struct Relu {
  static Simd::F of(Simd::F x) { return Simd::if_less(x, Simd::zero(), Simd::zero(), x); }
};

template <typename Function>
void gated(const float* gate, const float* up, float* y, int64_t n) noexcept {
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) {
    Simd::store(y + i, Simd::mul(Function::of(Simd::load(gate + i)), Simd::load(up + i)));
  }
  if (i < n) {
    Simd::store_n(y + i, Simd::mul(Function::of(Simd::load_n(gate + i, n - i)), Simd::load_n(up + i, n - i)), n - i);
  }
}

template <typename Function>
void in_place(float* x, int64_t n) noexcept {
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(x + i, Function::of(Simd::load(x + i)));
  if (i < n) Simd::store_n(x + i, Function::of(Simd::load_n(x + i, n - i)), n - i);
}

inline void softcap(float* x, float cap, int64_t n) noexcept {
  const Simd::F c = Simd::set(cap);
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) {
    Simd::store(x + i, Simd::mul(c, tanh(Simd::div(Simd::load(x + i), c))));
  }
  if (i < n) Simd::store_n(x + i, Simd::mul(c, tanh(Simd::div(Simd::load_n(x + i, n - i), c))), n - i);
}

}  // namespace
}  // namespace millrace
