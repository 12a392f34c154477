// Chooses the scales of a block by a small deterministic search. Candidates are near the scale that exactly covers the
// range. For each candidate, it rounds the values and computes the least-squares scale for the rounded values. The
// scale with the smallest squared error is used, the first one in a tie. `weights`: factor of each value's squared
// error; null: all 1. Pure functions, no allocation. Sums are in double precision, in index order.
#pragma once

#include <cmath>

#include "formats/block.h"

namespace millrace {

// Fits value = scale * level, where round_to_grid(value / scale) returns the level. `end`: the level of largest
// magnitude (-8 for -8 .. 7). Candidates map the value of largest magnitude to end + t / 10 * |end| / 8 for t = -steps
// .. steps.
template <typename RoundToGrid>
float fit_scale(const float* x, int n, float end, int steps, RoundToGrid round_to_grid,
                const float* weights = nullptr) {
  float largest = largest_signed(x, n);
  if (largest == 0) return 0;
  double best_score = 0;  // reduction of sum x^2 by the fit
  double best_scale = 0;
  for (int i = 0; i <= 2 * steps; ++i) {
    int t = i % 2 ? (i + 1) / 2 : -i / 2;  // 0, 1, -1, 2, -2 ...
    float inverse = (end + static_cast<float>(t) * 0.1f * std::fabs(end) / 8.0f) / largest;
    if (!std::isfinite(inverse)) continue;
    double qx = 0;
    double qq = 0;
    for (int j = 0; j < n; ++j) {
      double q = round_to_grid(x[j] * inverse);
      const double weight = weights ? weights[j] : 1.0;
      qx += weight * q * x[j];
      qq += weight * q * q;
    }
    if (qq > 0 && qx * qx > best_score * qq) {
      best_score = qx * qx / qq;
      best_scale = qx / qq;
    }
  }
  return static_cast<float>(best_scale);
}

struct AffineScale {
  float scale = 0;
  float minimum = 0;  // value = scale * q - minimum, with minimum >= 0
};

// Fits value = scale * q - minimum with q in 0 .. levels.
AffineScale fit_affine(const float* x, int n, int levels, const float* weights = nullptr);

}  // namespace millrace
