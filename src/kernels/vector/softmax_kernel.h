// Softmax of a row in place, in vectors. Include after simd_math.h. A row of -inf becomes zeros. The order of the sum
// is fixed: first lane by lane over all vectors, then a tree over the lanes.
#pragma once

#include <cstring>
#include <limits>

#include "kernels/ops.h"

namespace millrace {
namespace {

// Loads the last n values of a row; the other lanes are -inf.
inline Simd::F load_rest(const float* x, int64_t n) {
  float rest[Simd::kLanes];
  for (float& value : rest) value = -std::numeric_limits<float>::infinity();
  std::memcpy(rest, x, static_cast<size_t>(n) * sizeof(float));
  return Simd::load(rest);
}

inline void softmax(float* x, int64_t n) noexcept {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const int64_t whole = n / Simd::kLanes * Simd::kLanes;
  const int64_t rest = n - whole;
  Simd::F top = Simd::set(kLowest);
  for (int64_t i = 0; i < whole; i += Simd::kLanes) top = Simd::max(Simd::load(x + i), top);
  if (rest) top = Simd::max(load_rest(x + whole, rest), top);
  const float max = Simd::largest(top);
  if (max == kLowest) {
    for (int64_t i = 0; i < n; ++i) x[i] = 0;
    return;
  }
  const Simd::F shift = Simd::set(max);
  Simd::F sum = Simd::zero();
  for (int64_t i = 0; i < whole; i += Simd::kLanes) {
    const Simd::F e = exp(Simd::sub(Simd::load(x + i), shift));
    Simd::store(x + i, e);
    sum = Simd::add(sum, e);
  }
  if (rest) {
    const Simd::F e = exp(Simd::sub(load_rest(x + whole, rest), shift));
    Simd::store_n(x + whole, e, rest);
    sum = Simd::add(sum, e);
  }
  const Simd::F factor = Simd::set(1.0f / Simd::sum(sum));
  for (int64_t i = 0; i < whole; i += Simd::kLanes) Simd::store(x + i, Simd::mul(Simd::load(x + i), factor));
  if (rest) Simd::store_n(x + whole, Simd::mul(Simd::load_n(x + whole, rest), factor), rest);
}

}  // namespace
}  // namespace millrace
