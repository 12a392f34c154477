// SecondMoments: X^T X over the input rows X of a matrix. For a matrix with n columns these are n x n sums, of which
// the upper triangle is stored. linear() computes the products in single precision, up to 512 rows at a time. They are
// summed in double precision in the order of the rows, so the sums do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace millrace {

class SecondMoments {
 public:
  SecondMoments() = default;
  explicit SecondMoments(int64_t columns)
      : columns_(columns), sums_(static_cast<size_t>(columns * (columns + 1) / 2)) {}

  int64_t columns() const { return columns_; }
  // Bytes of the sums. scratch_bytes(): peak memory of add().
  static int64_t bytes(int64_t columns) { return columns * (columns + 1) / 2 * 8; }
  static int64_t scratch_bytes(int64_t columns);

  // Adds rows: x [rows, columns]. Errors: resource.
  Result<void> add(const float* x, int64_t rows, const KernelTable& table, ThreadPool& pool);

  // Requires i <= j.
  double at(int64_t i, int64_t j) const { return sums_[static_cast<size_t>(row_begin(i) + j - i)]; }
  // Row i of the upper triangle: columns i, i + 1, ...
  const double* row(int64_t i) const { return &sums_[static_cast<size_t>(row_begin(i))]; }
  double* row(int64_t i) { return &sums_[static_cast<size_t>(row_begin(i))]; }
  void set(int64_t i, int64_t j, double value) { sums_[static_cast<size_t>(row_begin(i) + j - i)] = value; }
  double diagonal_mean() const;
  // Returns e^T H e, where H are these moments and e is [columns]: the squared output error due to an error e in one
  // row of the matrix.
  double form(const double* e) const;
  // Returns both triangles, [columns, columns].
  std::vector<double> dense() const;

 private:
  int64_t row_begin(int64_t i) const { return i * columns_ - i * (i - 1) / 2; }

  int64_t columns_ = 0;
  std::vector<double> sums_;  // rows of the upper triangle
};

// Returns the trace of A B for symmetric A and B. If A is E^T E for an error E of a matrix, and B are the moments of
// its inputs, the trace is the squared output error due to E.
double trace_product(const SecondMoments& a, const SecondMoments& b);

}  // namespace millrace
