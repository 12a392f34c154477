// DenseSparse: a matrix W [rows, cols] as a product D S of a dense D [rows, atoms] and a sparse S with few values in
// each column: every column of W is a combination of a few columns (atoms) of D. The error of a column is multiplied by
// its weight. Not thread-safe; results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/weight_parts.h"

namespace millrace {

class DenseSparse {
 public:
  // `values` [rows, cols]; `squares` [cols], of the columns' weights; D^T [atoms, rows] to begin with.
  DenseSparse(const std::vector<float>& values, std::vector<double> squares, std::vector<double> atoms,
              int64_t nonzeros, ThreadPool& pool);

  // Chooses S for D by orthogonal matching pursuit: for each column, adds one atom after the other, always the one that
  // explains most of the remaining error, with the best values of all atoms so far.
  void code();
  // The best D for S (method of optimal directions, Engan et al., 1999). Atoms that no column has become the columns
  // that are explained worst. All are scaled to length 1.
  void update();

  // The part of the squared columns that is not explained; of the last code().
  double error() const;
  std::vector<double>& atoms() { return atoms_; }  // D^T
  SparseMatrix sparse() const;                     // S [atoms, cols]
  static int64_t bytes(int64_t rows, int64_t cols, int64_t atoms, int64_t nonzeros) {
    return 8 * (rows * cols + 2 * atoms * rows + 3 * atoms * atoms) + 16 * cols * nonzeros;
  }

 private:
  const double* column(int64_t c) const { return &columns_[static_cast<size_t>(c * rows_)]; }
  const double* atom(int64_t k) const { return &atoms_[static_cast<size_t>(k * rows_)]; }
  void code_column(int64_t col, const std::vector<double>& products);
  void replace_unused();

  int64_t rows_, cols_, count_, nonzeros_;
  std::vector<double> columns_;  // W^T
  std::vector<double> squares_, atoms_;
  std::vector<double> left_;                // [cols], squared, not explained
  std::vector<std::vector<int32_t>> used_;  // atoms of each column, in the order in which they were chosen
  std::vector<std::vector<double>> coefficients_;
  ThreadPool& pool_;
};

}  // namespace millrace
