// Sums over rows of doubles, in a fixed order that the compiler can vectorize.
#pragma once

#include <cstdint>

namespace millrace {

template <typename Other>
double dot_product(const double* a, const Other* b, int64_t n) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t l = 0; l < 8; ++l) lanes[l] += a[i + l] * b[i + l];
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <typename Other>
void add_scaled(double* to, double factor, const Other* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

}  // namespace millrace
