#include "compress/rounding/symmetric_inverse.h"

#include <cmath>

namespace millrace {

// The sweep operator, pivot by pivot: after all of them the matrix is minus its inverse.
bool invert_symmetric(std::vector<double>& matrix, int64_t n, ThreadPool& pool) {
  std::vector<double> line(static_cast<size_t>(n));
  for (int64_t p = 0; p < n; ++p) {
    double* const pivot_row = matrix.data() + p * n;
    const double pivot = pivot_row[p];
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    for (int64_t j = 0; j < n; ++j) line[static_cast<size_t>(j)] = pivot_row[j];
    pool.parallel_for(n, [&](int64_t i, int) {
      if (i == p) return;
      double* const row = matrix.data() + i * n;
      const double factor = line[static_cast<size_t>(i)] / pivot;
      for (int64_t j = 0; j < n; ++j) row[j] -= factor * line[static_cast<size_t>(j)];
      row[p] = factor;
    });
    for (int64_t j = 0; j < n; ++j) pivot_row[j] = line[static_cast<size_t>(j)] / pivot;
    pivot_row[p] = -1 / pivot;
  }
  for (double& value : matrix) value = -value;
  return true;
}

}  // namespace millrace
