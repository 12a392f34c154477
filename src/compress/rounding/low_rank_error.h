// The error that rounding made in a matrix, and the low-rank pair that corrects most of it (LQER; LoRC of
// ZeroQuant-V2). Among all pairs of a rank, B A leaves the smallest error of the outputs, weighted with the inputs'
// norms or all of their second moments H: B is an orthonormal basis of the largest eigenvectors of E H E^T, and
// A = B^T E. Subspace iteration finds them; it starts from fixed numbers, and all sums have a fixed order. Pure
// functions.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

// Fills `encoded` with plain rounding if no pass chose the levels.
void round_plainly(PassMatrix& matrix, ThreadPool& pool);
// The rounding error of the matrix, [rows, cols], for the unchanged input.
std::vector<float> rounding_error(const PassMatrix& matrix, ThreadPool& pool);
// Memory of the two functions above and of add_low_rank_pair(), in addition to the matrix.
inline int64_t low_rank_bytes(int64_t rows, int64_t cols, int64_t rank) {
  return rows * cols * 8 + rank * (rows + cols) * 32;
}
// Fills the matrix's pair, which is rounded to F16. `moments`: with all of them, else with the squares only.
void add_low_rank_pair(PassMatrix& matrix, const std::vector<float>& error, int64_t rank,
                       const LinearStatistics& statistics, bool moments, ThreadPool& pool);

}  // namespace millrace
