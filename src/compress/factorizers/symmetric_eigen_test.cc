// Eigenvectors against their definition: products, lengths, angles and the trace; for any number of threads.
#include "compress/factorizers/symmetric_eigen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compress/compress_test.h"

namespace millrace {
namespace {

std::vector<double> random_symmetric(int64_t n, uint32_t seed) {
  const std::vector<float> values = testing::normal_values(n * n, seed);
  std::vector<double> out(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      out[static_cast<size_t>(i * n + j)] = values[static_cast<size_t>(std::min(i, j) * n + std::max(i, j))];
  return out;
}

void expect_eigenvectors(const std::vector<double>& matrix, int64_t n, const EigenPairs& pairs) {
  ASSERT_TRUE(pairs.converged);
  ASSERT_EQ(std::ssize(pairs.values), n);
  double trace = 0, sum = 0, largest = 0;
  for (int64_t i = 0; i < n; ++i) trace += matrix[static_cast<size_t>(i * n + i)];
  for (double value : pairs.values) {
    sum += value;
    largest = std::max(largest, std::fabs(value));
  }
  EXPECT_NEAR(sum, trace, 1e-10 * static_cast<double>(n) * (largest + 1e-30));
  EXPECT_TRUE(std::ranges::is_sorted(pairs.values, std::greater<>()));
  const int64_t count = std::ssize(pairs.vectors) / n;
  for (int64_t k = 0; k < count; ++k) {
    const double* v = pairs.vectors.data() + k * n;
    for (int64_t i = 0; i < n; ++i) {
      double product = 0;
      for (int64_t j = 0; j < n; ++j) product += matrix[static_cast<size_t>(i * n + j)] * v[j];
      ASSERT_NEAR(product, pairs.values[static_cast<size_t>(k)] * v[i], 1e-10 * (largest + 1e-30)) << k << " " << i;
    }
    for (int64_t other = 0; other <= k; ++other) {
      double along = 0;
      for (int64_t i = 0; i < n; ++i) along += v[i] * pairs.vectors[static_cast<size_t>(other * n + i)];
      ASSERT_NEAR(along, other == k ? 1 : 0, 1e-10) << k << " " << other;
    }
  }
}

TEST(SymmetricEigen, VectorsFollowTheDefinition) {
  ThreadPool one(1), three(3);
  for (int64_t n : {1, 2, 3, 17, 64, 150}) {
    const std::vector<double> matrix = random_symmetric(n, static_cast<uint32_t>(n));
    const EigenPairs pairs = symmetric_eigen(matrix, n, n, one);
    expect_eigenvectors(matrix, n, pairs);
    const EigenPairs again = symmetric_eigen(matrix, n, n, three);
    EXPECT_TRUE(pairs.values == again.values && pairs.vectors == again.vectors) << n;
  }
}

TEST(SymmetricEigen, EqualAndZeroValues) {
  ThreadPool pool(2);
  const int64_t n = 40;
  std::vector<double> identity(n * n), zero(n * n), block(n * n);
  for (int64_t i = 0; i < n; ++i) identity[static_cast<size_t>(i * n + i)] = 2;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 3; ++j)
      block[static_cast<size_t>((7 + i) * n + 7 + j)] = 1e-3 * static_cast<double>(1 + i * j);
  for (const std::vector<double>& matrix : {identity, zero, block})
    expect_eigenvectors(matrix, n, symmetric_eigen(matrix, n, n, pool));
  block[5] = NAN;
  block[5 * n] = NAN;
  EXPECT_FALSE(symmetric_eigen(block, n, n, pool).converged);
}

}  // namespace
}  // namespace millrace
