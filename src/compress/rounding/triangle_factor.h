// TriangleFactor: the upper triangular R with H = R R^T, a Cholesky factor computed from the last column to the first.
// The computation is blocked and parallel, with a fixed order of every sum, so R does not depend on the number of
// threads.
//
// For an error e of one row of a matrix, e^T H e = sum over i of (R^T e)_i ^ 2, and (R^T e)_i depends only on e_0 ..
// e_i. So columns can be rounded one after the other, and each can compensate the errors of the earlier ones.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "compress/calibration/second_moments.h"

namespace millrace {

class TriangleFactor {
 public:
  TriangleFactor() = default;
  static int64_t bytes(int64_t n) { return n * (n + 1) / 2 * 8; }

  // Computes R of H: `moments` with rows and columns in `order`, plus `damping` on the diagonal. Returns false if H is
  // not positive definite.
  bool factor(const SecondMoments& moments, const std::vector<int32_t>& order, double damping, ThreadPool& pool);

  int64_t size() const { return n_; }
  // Returns R[i][j] for j = i, i + 1, ...
  const double* row(int64_t i) const { return &values_[static_cast<size_t>(i * n_ - i * (i - 1) / 2)]; }
  double diagonal(int64_t i) const { return row(i)[0]; }

 private:
  double* from(int64_t i, int64_t j) { return &values_[static_cast<size_t>(i * n_ - i * (i - 1) / 2 + j - i)]; }
  void fill(const SecondMoments& moments, const std::vector<int32_t>& order, double damping, ThreadPool& pool);
  bool factor_block(int64_t begin, int64_t end);

  int64_t n_ = 0;
  std::vector<double> values_;  // rows of the upper triangle
};

// Returns H^-1 [n, n], for pruners that need the whole inverse.
std::vector<double> full_inverse(const TriangleFactor& factor, ThreadPool& pool);

}  // namespace millrace
