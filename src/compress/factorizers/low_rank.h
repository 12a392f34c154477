// The best pair B A of a rank in place of a matrix W [rows, cols], by the size of the outputs' error:
//
//   sum over inputs x of |(W - B A) x|^2 = |(W - B A) S|^2     with S S^T = sum of x x^T, or less of it
//
// With the singular vectors U of W S, B = U_k and A = U_k^T W: then B A S is the truncated W S (Eckart and Young,
// 1936), and the loss is the sum of the squared singular values that were dropped. Pure functions; results do not
// depend on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/pass.h"

namespace millrace {

// Weights of the outputs' error.
struct InputWeights {
  std::vector<double> scales;              // S = diag(scales); empty: see below
  const SecondMoments* moments = nullptr;  // S S^T = moments - centre centre^T / rows; null, without scales: S = I
  std::vector<double> sums;                // centre, [cols]; empty: 0
  int64_t rows = 0;                        // number of input rows, with `sums`
};

// The requested number of left singular vectors of W S, and all of its squared singular values.
struct OutputBasis {
  std::vector<double> energies;  // descending, min(rows, cols) of them
  std::vector<double> vectors;   // [count, rows], orthonormal, or zero where an energy is zero
  bool found = false;            // false: the numbers are not finite
};

OutputBasis output_basis(const PassMatrix& matrix, const InputWeights& weights, int64_t count, ThreadPool& pool);
int64_t output_basis_bytes(int64_t rows, int64_t cols);

// The part of the energies that a rank drops.
double dropped_energy(const std::vector<double>& energies, int64_t rank);

// Orthonormal rows from [count, n], one after the other; a row that depends on earlier ones becomes zero.
void orthonormal_rows(std::vector<double>& rows, int64_t count, int64_t n);

// A [count, cols] with the least |W - B A|, of B^T [count, rows] = `b`; also the least |(W - B A) S| of any S. Empty: B
// has no full rank. A zero row of `b` gives a zero row.
std::vector<double> solve_inner(const PassMatrix& matrix, const std::vector<double>& b, int64_t count,
                                ThreadPool& pool);

}  // namespace millrace
