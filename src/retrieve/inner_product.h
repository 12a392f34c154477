// The inner product of two vectors, as the graph and the exact search compute it. Sixteen partial sums, added in a
// fixed order: the result depends on the two vectors alone, not on the instruction set.
#pragma once

#include <cstddef>

namespace millrace {

inline float inner_product(const float* a, const float* b, size_t size) {
  constexpr size_t kLanes = 16;
  float sums[kLanes] = {};
  size_t at = 0;
  for (; at + kLanes <= size; at += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[at + lane] * b[at + lane];
  for (size_t lane = 0; at < size; ++at, ++lane) sums[lane] += a[at] * b[at];
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

}  // namespace millrace
