// DenseSparse: approximates a matrix W [rows, cols] by a product D S of a dense D [rows, atoms] and a sparse S with few
// values in each column. So every column of W is a combination of a few columns (atoms) of D. The error of each column
// of W has a weight. Not thread-safe; results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/weight_parts.h"

namespace millrace {

class DenseSparse {
 public:
  // `values`: W [rows, cols]. `squares`: [cols], squares of the columns' weights. `atoms`: initial D^T [atoms, rows].
  // `nonzeros`: values in each column of S.
  DenseSparse(const std::vector<float>& values, std::vector<double> squares, std::vector<double> atoms,
              int64_t nonzeros, ThreadPool& pool);

  // Computes S for the current D by orthogonal matching pursuit. For each column, it adds one atom after the other,
  // always the one that explains most of the remaining error, and recomputes the values of all atoms chosen so far.
  void code();
  // Computes the best D for the current S (method of optimal directions, Engan et al., 1999). Replaces unused atoms by
  // the columns with the largest errors. Scales all atoms to length 1.
  void update();

  // Returns the squared error of the last code(), as a fraction of the squared columns.
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
  std::vector<double> left_;                // [cols], squared error of each column
  std::vector<std::vector<int32_t>> used_;  // atoms of each column, in the order in which they were chosen
  std::vector<std::vector<double>> coefficients_;
  ThreadPool& pool_;
};

}  // namespace millrace
