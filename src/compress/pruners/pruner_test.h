// Plain linear algebra in double precision, for tests of pruners.
#pragma once

#include <algorithm>
#include <vector>

#include "compress/compress_test.h"

namespace millrace::testing {

using Square = std::vector<std::vector<double>>;

// Returns the second moments with `damp` times the mean of their diagonal added to the diagonal.
inline Square hessian_of(const LinearStatistics& statistics, double damp) {
  const SecondMoments& moments = statistics.moments;
  const int64_t n = moments.columns();
  Square out(static_cast<size_t>(n), std::vector<double>(static_cast<size_t>(n)));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      out[static_cast<size_t>(i)][static_cast<size_t>(j)] =
          moments.at(std::min(i, j), std::max(i, j)) + (i == j ? damp * moments.diagonal_mean() : 0);
  return out;
}

// Returns the inverse of a positive definite matrix by Gauss-Jordan elimination.
inline Square inverse_of(Square a) {
  const size_t n = a.size();
  Square out(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) out[i][i] = 1;
  for (size_t i = 0; i < n; ++i) {
    const double pivot = a[i][i];
    for (size_t k = 0; k < n; ++k) {
      a[i][k] /= pivot;
      out[i][k] /= pivot;
    }
    for (size_t j = 0; j < n; ++j) {
      const double factor = a[j][i];
      for (size_t k = 0; j != i && k < n; ++k) {
        a[j][k] -= factor * a[i][k];
        out[j][k] -= factor * out[i][k];
      }
    }
  }
  return out;
}

// Returns the submatrix of rows and columns from `begin` on.
inline Square tail_of(const Square& a, size_t begin) {
  Square out;
  for (size_t i = begin; i < a.size(); ++i)
    out.emplace_back(a[i].begin() + static_cast<std::ptrdiff_t>(begin), a[i].end());
  return out;
}

// Returns the sum of e^T H e over all rows, where e is the change of a row.
inline double loss_of(const PassMatrix& matrix, const std::vector<float>& before, const Square& h) {
  const size_t n = h.size();
  double loss = 0;
  for (size_t begin = 0; begin < before.size(); begin += n)
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) {
        const auto error = [&](size_t c) {
          const bool kept = matrix.kept.empty() || matrix.kept[begin + c];
          return double{before[begin + c]} - (kept ? double{matrix.values[begin + c]} : 0);
        };
        loss += error(i) * h[i][j] * error(j);
      }
  return loss;
}

// Expects that exactly `count` weights of each group are pruned.
inline void expect_pruned(const PassMatrix& matrix, int64_t group, int64_t count) {
  for (int64_t begin = 0; begin < std::ssize(matrix.kept); begin += group)
    EXPECT_EQ(std::count(matrix.kept.begin() + begin, matrix.kept.begin() + begin + group, 0), count) << begin;
}

}  // namespace millrace::testing
