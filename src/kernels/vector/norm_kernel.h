// RMSNorm and LayerNorm in vectors. Include after a simd_*.h. Sums have a fixed order: blocks of four vectors are added
// to four sums, remaining vectors and the tail to the first sum, and the sums are joined by a tree.
#pragma once

#include "kernels/ops.h"

namespace millrace {
namespace {

// Returns the sum over i of (x[i] - shift)^kPower; kPower is 1 or 2.
template <int kPower>
float reduce(const float* x, float shift, int64_t n) {
  const Simd::F minus = Simd::set(shift);
  const auto term = [&](Simd::F v, Simd::F sum) {
    v = Simd::sub(v, minus);
    return kPower == 1 ? Simd::add(v, sum) : Simd::fma(v, v, sum);
  };
  Simd::F sum[4] = {Simd::zero(), Simd::zero(), Simd::zero(), Simd::zero()};
  int64_t i = 0;
  for (; i + 4 * Simd::kLanes <= n; i += 4 * Simd::kLanes) {
    for (int c = 0; c < 4; ++c) sum[c] = term(Simd::load(x + i + c * Simd::kLanes), sum[c]);
  }
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) sum[0] = term(Simd::load(x + i), sum[0]);
  float rest = 0;
  for (; i < n; ++i) rest += kPower == 1 ? x[i] - shift : (x[i] - shift) * (x[i] - shift);
  return Simd::sum(Simd::add(Simd::add(sum[0], sum[1]), Simd::add(sum[2], sum[3]))) + rest;
}

// Computes y = (x - mean) * factor * (w + offset) + b.
template <typename Load, typename Store>
inline void normalize(const Load& load, const Store& store, const float* w, const float* b, float mean, float factor,
                      float offset) {
  Simd::F v = Simd::mul(Simd::sub(load.x(), Simd::set(mean)), Simd::set(factor));
  if (w) v = Simd::mul(v, Simd::add(load.at(w), Simd::set(offset)));
  if (b) v = Simd::add(v, load.at(b));
  store(v);
}

struct WholeVector {
  const float* source;
  int64_t i;
  Simd::F x() const { return Simd::load(source + i); }
  Simd::F at(const float* p) const { return Simd::load(p + i); }
};

struct PartVector {
  const float* source;
  int64_t i;
  int64_t n;
  Simd::F x() const { return Simd::load_n(source + i, n); }
  Simd::F at(const float* p) const { return Simd::load_n(p + i, n); }
};

inline void normalize_all(const float* x, const float* w, const float* b, float mean, float factor, float offset,
                          int64_t n, float* y) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) {
    normalize(
        WholeVector{x, i}, [&](Simd::F v) { Simd::store(y + i, v); }, w, b, mean, factor, offset);
  }
  if (i < n) {
    normalize(
        PartVector{x, i, n - i}, [&](Simd::F v) { Simd::store_n(y + i, v, n - i); }, w, b, mean, factor, offset);
  }
}

inline float inverse_root(float sum, int64_t n, float eps) {
  return 1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
}

inline void rms_norm(const float* x, const float* w, float offset, float eps, int64_t n, float* y) noexcept {
  normalize_all(x, w, nullptr, 0, inverse_root(reduce<2>(x, 0, n), n, eps), offset, n, y);
}

inline void layer_norm(const float* x, const float* w, const float* b, float eps, int64_t n, float* y) noexcept {
  const float mean = reduce<1>(x, 0, n) / static_cast<float>(n);
  normalize_all(x, w, b, mean, inverse_root(reduce<2>(x, mean, n), n, eps), 0, n, y);
}

}  // namespace
}  // namespace millrace
