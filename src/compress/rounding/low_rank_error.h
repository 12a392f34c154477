// Computes the rounding error E of a matrix, and the low-rank pair B A that corrects most of it (LQER; LoRC of
// ZeroQuant-V2). The pair has the smallest output error of its rank, weighted with the inputs' norms or with all of
// their second moments H. B is an orthonormal basis of the eigenvectors of E H E^T with the largest eigenvalues, and A
// = B^T E. Subspace iteration finds B; it starts from fixed numbers, and all sums have a fixed order. Pure functions.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

// Fills `encoded` with plain rounding if no pass chose the levels.
void round_plainly(PassMatrix& matrix, ThreadPool& pool);
// Returns the rounding error of the matrix, [rows, cols], with respect to the unchanged input.
std::vector<float> rounding_error(const PassMatrix& matrix, ThreadPool& pool);
// Returns the bytes that the functions of this header need in addition to the matrix.
inline int64_t low_rank_bytes(int64_t rows, int64_t cols, int64_t rank) {
  return rows * cols * 8 + rank * (rows + cols) * 32;
}
// Fills the matrix's pair, rounded to F16. `moments`: true: weighs with all second moments; false: with the squares
// only.
void add_low_rank_pair(PassMatrix& matrix, const std::vector<float>& error, int64_t rank,
                       const LinearStatistics& statistics, bool moments, ThreadPool& pool);

}  // namespace millrace
