// Finds the pair B A of a given rank that replaces a matrix W [rows, cols] with the smallest error of the outputs:
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

// Describes S, the weights of the outputs' error.
struct InputWeights {
  std::vector<double> scales;  // S = diag(scales); empty: `moments` defines S
  // S S^T = moments - centre centre^T / rows; null: S = I, if there are no scales.
  const SecondMoments* moments = nullptr;
  std::vector<double> sums;  // centre, [cols]; empty: centre = 0
  int64_t rows = 0;          // number of input rows, with `sums`
};

// The first `count` left singular vectors of W S, and all of its squared singular values.
struct OutputBasis {
  std::vector<double> energies;  // squared singular values, [min(rows, cols)], descending
  std::vector<double> vectors;   // [count, rows], orthonormal, or zero where an energy is zero
  bool found = false;            // false: the numbers are not finite
};

OutputBasis output_basis(const PassMatrix& matrix, const InputWeights& weights, int64_t count, ThreadPool& pool);
int64_t output_basis_bytes(int64_t rows, int64_t cols);

// Returns the fraction of the energies that is dropped at this rank.
double dropped_energy(const std::vector<double>& energies, int64_t rank);

// Makes rows [count, n] orthonormal, one after the other; a row that depends on earlier ones becomes zero.
void orthonormal_rows(std::vector<double>& rows, int64_t count, int64_t n);

// Returns the A [count, cols] with the smallest |W - B A|, where `b` is B^T [count, rows]. This A also minimizes |(W -
// B A) S| for any S. A zero row of `b` gives a zero row of A. Returns empty if B does not have full rank.
std::vector<double> solve_inner(const PassMatrix& matrix, const std::vector<double>& b, int64_t count,
                                ThreadPool& pool);

}  // namespace millrace
