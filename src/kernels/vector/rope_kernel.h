// Rotary position embedding (Su et al., 2021, "RoFormer") in vectors, one head at a time. Include after
// a simd_*.h.
#pragma once

#include <cstring>

#include "kernels/ops.h"

namespace millrace {
namespace {

// Rotates (a, b) to (a cos - b sin, a sin + b cos).
inline void rotate(Simd::F& a, Simd::F& b, Simd::F cos, Simd::F sin) {
  const Simd::F turned = Simd::fnma(b, sin, Simd::mul(a, cos));
  b = Simd::fma(a, sin, Simd::mul(b, cos));
  a = turned;
}

inline void rope_half(const float* from, float* to, const float* cos, const float* sin, int64_t pairs) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= pairs; i += Simd::kLanes) {
    Simd::F a = Simd::load(from + i);
    Simd::F b = Simd::load(from + pairs + i);
    rotate(a, b, Simd::load(cos + i), Simd::load(sin + i));
    Simd::store(to + i, a);
    Simd::store(to + pairs + i, b);
  }
  if (i < pairs) {
    const int64_t n = pairs - i;
    Simd::F a = Simd::load_n(from + i, n);
    Simd::F b = Simd::load_n(from + pairs + i, n);
    rotate(a, b, Simd::load_n(cos + i, n), Simd::load_n(sin + i, n));
    Simd::store_n(to + i, a, n);
    Simd::store_n(to + pairs + i, b, n);
  }
}

inline void rotate_neighbours(const float* from, float* to, Simd::F cos, Simd::F sin) {
  Simd::F x, y, a = Simd::load(from), b = Simd::load(from + Simd::kLanes);
  Simd::split_pairs(a, b, x, y);
  rotate(x, y, cos, sin);
  Simd::join_pairs(x, y, a, b);
  Simd::store(to, a);
  Simd::store(to + Simd::kLanes, b);
}

inline void rope_neighbours(const float* from, float* to, const float* cos, const float* sin, int64_t pairs) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= pairs; i += Simd::kLanes) {
    rotate_neighbours(from + 2 * i, to + 2 * i, Simd::load(cos + i), Simd::load(sin + i));
  }
  if (i < pairs) {
    const int64_t n = pairs - i;
    float rest[2 * Simd::kLanes] = {};
    std::memcpy(rest, from + 2 * i, static_cast<size_t>(n) * 2 * sizeof(float));
    rotate_neighbours(rest, rest, Simd::load_n(cos + i, n), Simd::load_n(sin + i, n));
    std::memcpy(to + 2 * i, rest, static_cast<size_t>(n) * 2 * sizeof(float));
  }
}

// Rotates the first 2 * pairs dims of a head; does not copy the other dims. `to` may be `from`.
inline void rope_to(const float* from, float* to, const float* cos, const float* sin, int64_t pairs, bool half) {
  half ? rope_half(from, to, cos, sin, pairs) : rope_neighbours(from, to, cos, sin, pairs);
}

inline void rope(float* head, const float* cos, const float* sin, int64_t rotated, bool half) noexcept {
  rope_to(head, head, cos, sin, rotated / 2, half);
}

}  // namespace
}  // namespace millrace
