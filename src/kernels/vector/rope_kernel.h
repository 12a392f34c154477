// Rotary position embedding (Su et al., 2021, "RoFormer") in vectors, one head in place. Include after
// a simd_*.h.
#pragma once

#include <cstring>

#include "kernels/ops.h"

namespace millrace {
namespace {

// (a, b) -> (a cos - b sin, a sin + b cos)
inline void rotate(Simd::F& a, Simd::F& b, Simd::F cos, Simd::F sin) {
  const Simd::F turned = Simd::fnma(b, sin, Simd::mul(a, cos));
  b = Simd::fma(a, sin, Simd::mul(b, cos));
  a = turned;
}

inline void rope_half(float* head, const float* cos, const float* sin, int64_t pairs) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= pairs; i += Simd::kLanes) {
    Simd::F a = Simd::load(head + i);
    Simd::F b = Simd::load(head + pairs + i);
    rotate(a, b, Simd::load(cos + i), Simd::load(sin + i));
    Simd::store(head + i, a);
    Simd::store(head + pairs + i, b);
  }
  if (i < pairs) {
    const int64_t n = pairs - i;
    Simd::F a = Simd::load_n(head + i, n);
    Simd::F b = Simd::load_n(head + pairs + i, n);
    rotate(a, b, Simd::load_n(cos + i, n), Simd::load_n(sin + i, n));
    Simd::store_n(head + i, a, n);
    Simd::store_n(head + pairs + i, b, n);
  }
}

inline void rotate_neighbours(float* pairs, Simd::F cos, Simd::F sin) {
  Simd::F x, y, a = Simd::load(pairs), b = Simd::load(pairs + Simd::kLanes);
  Simd::split_pairs(a, b, x, y);
  rotate(x, y, cos, sin);
  Simd::join_pairs(x, y, a, b);
  Simd::store(pairs, a);
  Simd::store(pairs + Simd::kLanes, b);
}

inline void rope_neighbours(float* head, const float* cos, const float* sin, int64_t pairs) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= pairs; i += Simd::kLanes) {
    rotate_neighbours(head + 2 * i, Simd::load(cos + i), Simd::load(sin + i));
  }
  if (i < pairs) {
    const int64_t n = pairs - i;
    float rest[2 * Simd::kLanes] = {};
    std::memcpy(rest, head + 2 * i, static_cast<size_t>(n) * 2 * sizeof(float));
    rotate_neighbours(rest, Simd::load_n(cos + i, n), Simd::load_n(sin + i, n));
    std::memcpy(head + 2 * i, rest, static_cast<size_t>(n) * 2 * sizeof(float));
  }
}

inline void rope(float* head, const float* cos, const float* sin, int64_t rotated, bool half) noexcept {
  if (half) {
    rope_half(head, cos, sin, rotated / 2);
  } else {
    rope_neighbours(head, cos, sin, rotated / 2);
  }
}

}  // namespace
}  // namespace millrace
