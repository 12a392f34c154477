// Second moments and their factor against plain sums, for any number of threads.
#include "compress/calibration/second_moments.h"

#include <numeric>

#include "compress/compress_test.h"
#include "compress/rounding/triangle_factor.h"

namespace millrace {
namespace {

using namespace testing;

TEST(SecondMoments, AreTheSumsOfProducts) {
  for (int64_t cols : {1, 5, 64, 129, 300}) {
    for (int64_t rows : {1, 3, 511, 700}) {
      const auto x = correlated_rows(rows, cols, 3);
      ThreadPool one(1), three(3);
      SecondMoments moments(cols), again(cols);
      ASSERT_TRUE(moments.add(x.data(), rows, test_kernels(), one).ok());
      ASSERT_TRUE(again.add(x.data(), rows, test_kernels(), three).ok());
      for (int64_t i = 0; i < cols; ++i) {
        for (int64_t j = i; j < cols; ++j) {
          double sum = 0, size = 0;
          for (int64_t r = 0; r < rows; ++r) {
            const double product = double{x[r * cols + i]} * x[r * cols + j];
            sum += product;
            size += std::fabs(product);
          }
          ASSERT_NEAR(moments.at(i, j), sum, 1e-5 * size) << i << " " << j << " of " << cols;
          ASSERT_EQ(moments.at(i, j), again.at(i, j));
        }
      }
    }
  }
}

TEST(SecondMoments, AddUp) {
  ThreadPool pool(2);
  const int64_t cols = 40;
  const auto x = correlated_rows(100, cols, 5);
  SecondMoments whole(cols), parts(cols);
  ASSERT_TRUE(whole.add(x.data(), 100, test_kernels(), pool).ok());
  ASSERT_TRUE(parts.add(x.data(), 60, test_kernels(), pool).ok());
  ASSERT_TRUE(parts.add(x.data() + 60 * cols, 40, test_kernels(), pool).ok());
  for (int64_t i = 0; i < cols; ++i) ASSERT_NEAR(whole.at(i, i), parts.at(i, i), 1e-4 * whole.at(i, i));
}

// |E X|^2, summed directly.
TEST(SecondMoments, TraceIsTheSumOfSquaredOutputs) {
  ThreadPool pool(2);
  const int64_t cols = 24, rows = 50, outputs = 7;
  const auto x = correlated_rows(rows, cols, 7), e = normal_values(outputs * cols, 8);
  double sum = 0;
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t o = 0; o < outputs; ++o) {
      double y = 0;
      for (int64_t c = 0; c < cols; ++c) y += double{e[o * cols + c]} * x[t * cols + c];
      sum += y * y;
    }
  SecondMoments inputs(cols), errors(cols);
  ASSERT_TRUE(inputs.add(x.data(), rows, test_kernels(), pool).ok());
  ASSERT_TRUE(errors.add(e.data(), outputs, test_kernels(), pool).ok());
  EXPECT_NEAR(trace_product(inputs, errors), sum, 1e-5 * sum);
}

TEST(TriangleFactor, ItsProductIsTheMatrix) {
  for (int64_t n : {1, 2, 63, 64, 65, 200}) {
    ThreadPool one(1), three(3);
    const auto statistics = statistics_of(correlated_rows(2 * n + 3, n, 9), n, one);
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.rbegin(), order.rend(), 0);  // reversed
    const double damping = 0.01 * statistics.moments.diagonal_mean();
    TriangleFactor factor, again;
    ASSERT_TRUE(factor.factor(statistics.moments, order, damping, one));
    ASSERT_TRUE(again.factor(statistics.moments, order, damping, three));
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_GT(factor.diagonal(i), 0);
      for (int64_t j = i; j < n; ++j) {
        double sum = 0;
        for (int64_t k = j; k < n; ++k) sum += factor.row(i)[k - i] * factor.row(j)[k - j];
        const double wanted = statistics.moments.at(n - 1 - j, n - 1 - i) + (i == j ? damping : 0);
        ASSERT_NEAR(sum, wanted, 1e-9 * statistics.moments.diagonal_mean()) << n << " " << i << " " << j;
        ASSERT_EQ(factor.row(i)[j - i], again.row(i)[j - i]);
      }
    }
  }
}

TEST(TriangleFactor, RefusesWhatIsNotPositiveDefinite) {
  ThreadPool pool(1);
  const int64_t n = 80;
  const auto statistics = statistics_of(correlated_rows(10, n, 11), n, pool);  // rank 10
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  TriangleFactor factor;
  EXPECT_FALSE(factor.factor(SecondMoments(n), order, 0, pool));
  EXPECT_FALSE(factor.factor(statistics.moments, order, -1, pool));
  EXPECT_TRUE(factor.factor(statistics.moments, order, 0.01 * statistics.moments.diagonal_mean(), pool));
}

}  // namespace
}  // namespace millrace
