// Computes the eigenvectors of a symmetric matrix with the largest eigenvalues: Householder's reduction to tridiagonal
// form, then QL steps with implicit shifts (Golub and Van Loan, "Matrix Computations", chapter 8). Every sum has a
// fixed order, so results do not depend on the number of threads. Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace millrace {

struct EigenPairs {
  std::vector<double> values;   // [n], all eigenvalues, descending
  std::vector<double> vectors;  // [count, n], orthonormal rows: eigenvectors of the first `count` values
  bool converged = false;       // false: the matrix is not finite
};

// Returns the peak memory of symmetric_eigen(), with the matrix.
inline int64_t symmetric_eigen_bytes(int64_t n) { return 3 * n * n * 8; }

// `matrix`: [n, n], both triangles. `count`: number of eigenvectors.
EigenPairs symmetric_eigen(std::vector<double> matrix, int64_t n, int64_t count, ThreadPool& pool);

}  // namespace millrace
