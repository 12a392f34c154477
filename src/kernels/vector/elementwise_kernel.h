// Elementwise arithmetic on rows in vectors; bit-identical to the reference. Include after a simd_*.h.
#pragma once

#include "kernels/ops.h"

namespace millrace {
namespace {

inline void add(const float* x, float* y, int64_t n) noexcept {
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(y + i, Simd::add(Simd::load(y + i), Simd::load(x + i)));
  if (i < n) Simd::store_n(y + i, Simd::add(Simd::load_n(y + i, n - i), Simd::load_n(x + i, n - i)), n - i);
}

inline void add_scaled(const float* x, float factor, float* y, int64_t n) noexcept {
  const Simd::F f = Simd::set(factor);
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) {
    Simd::store(y + i, Simd::fma(Simd::load(x + i), f, Simd::load(y + i)));
  }
  if (i < n) Simd::store_n(y + i, Simd::fma(Simd::load_n(x + i, n - i), f, Simd::load_n(y + i, n - i)), n - i);
}

inline void scale(float* x, float factor, int64_t n) noexcept {
  const Simd::F f = Simd::set(factor);
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(x + i, Simd::mul(Simd::load(x + i), f));
  if (i < n) Simd::store_n(x + i, Simd::mul(Simd::load_n(x + i, n - i), f), n - i);
}

}  // namespace
}  // namespace millrace
