// The eigenvectors of a symmetric matrix with the largest eigenvalues: Householder's reduction to three diagonals, then
// QL steps with implicit shifts (Golub and Van Loan, "Matrix Computations", chapter 8). Every sum has a fixed order, so
// that results do not depend on the number of threads. Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace millrace {

struct EigenPairs {
  std::vector<double> values;   // [n], all of them, descending
  std::vector<double> vectors;  // [count, n], orthonormal rows, those of the first values
  bool converged = false;       // false: the matrix is not finite
};

// Memory while symmetric_eigen() runs, with the matrix.
inline int64_t symmetric_eigen_bytes(int64_t n) { return 3 * n * n * 8; }

// `matrix` [n, n], both triangles.
EigenPairs symmetric_eigen(std::vector<double> matrix, int64_t n, int64_t count, ThreadPool& pool);

}  // namespace millrace
