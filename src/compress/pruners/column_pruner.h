// ColumnPruner: prunes the columns of a matrix one after the other and moves the weights of later columns to compensate
// the loss, as SparseGPT does. Pruners that differ in how they choose weights share it. DampedFactor: the factor of the
// Hessian that they use. Not thread-safe; results do not depend on the number of threads.
//
// With H = R R^T (triangle_factor.h) and the errors e_j = w_j - q_j of a row's columns before i, column i becomes
//
//   w_i + (sum over j < i of R_ji e_j) / R_ii, or zero
//
// This equals the paper's updates from the Cholesky factor of H^-1. If column i is set to zero and all later columns
// may compensate, the loss grows by R_ii^2 times the square of the first value.
#pragma once

#include <vector>

#include "compress/pruners/prune_pattern.h"
#include "compress/rounding/triangle_factor.h"

namespace millrace {

// The factor of the damped second moments; matrices that read the same rows share it.
class DampedFactor {
 public:
  // Computes the factor. Multiplies the damping by ten until the damped moments are positive definite. Returns false if
  // the inputs are all zero or not finite.
  bool prepare(const LinearStatistics& statistics, double damp, ThreadPool& pool);
  const TriangleFactor& factor() const { return factor_; }
  double damping() const { return damping_; }  // as a fraction of the mean of the diagonal

 private:
  bool ready_ = false;
  LinearId id_;
  double damping_ = 0;
  TriangleFactor factor_;
};

class ColumnPruner {
 public:
  // `block`: number of columns whose weights are chosen together, over all rows; if the pattern has groups, the choice
  // is within each group of a row. The score of a weight is its square times (R_ii^2 + more[i]). `more`: [cols]; empty:
  // zeros.
  ColumnPruner(PassMatrix& matrix, const TriangleFactor& factor, const PrunePattern& pattern, int64_t block,
               std::vector<double> more);
  // Prunes the matrix. In matrix.values, pruned weights become zero and the other weights compensate the loss.
  void run(ThreadPool& pool);
  static int64_t working_bytes(int64_t rows, int64_t cols, int64_t block);

 private:
  double* carried(int64_t row) { return &carried_[static_cast<size_t>(row * cols_)]; }
  float* values(int64_t row) { return &matrix_.values[static_cast<size_t>(row * cols_)]; }
  uint8_t* kept(int64_t row) { return &matrix_.kept[static_cast<size_t>(row * cols_)]; }
  void score(int64_t row, int64_t begin, int64_t end, double* scores);
  void fix(int64_t row, int64_t begin, int64_t end, int64_t block_end, double* errors);
  void carry(int64_t row, int64_t begin, int64_t end, int64_t to, int64_t to_end, const double* errors);
  void choose_in_groups(int64_t row, int64_t begin, int64_t end, double* errors);
  void choose_in_block(int64_t begin, int64_t end, ThreadPool& pool);

  PassMatrix& matrix_;
  const TriangleFactor& factor_;
  PrunePattern pattern_;
  int64_t cols_, block_;
  std::vector<double> more_;
  std::vector<double> carried_;  // [rows, cols], sums of R_ji e_j
  std::vector<double> scores_;   // [rows, columns of the block]
};

}  // namespace millrace
