// OBQ against its definition: after each weight the inverse of what is left of the second moments is taken anew.
#include <limits>
#include <set>

#include "compress/compress_test.h"
#include "compress/rounding/level_grid.h"
#include "compress/rounding/symmetric_inverse.h"
#include "contains.h"

namespace millrace {
namespace {

using namespace testing;

TEST(SymmetricInverse, TimesTheMatrixIsTheIdentity) {
  const int64_t n = 6;
  ThreadPool pool(2);
  const SecondMoments moments = statistics_of(correlated_rows(20, n, 4), n, pool).moments;
  std::vector<double> inverse = moments.dense();
  ASSERT_TRUE(invert_symmetric(inverse, n, pool));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < n; ++k)
        sum += inverse[static_cast<size_t>(i * n + k)] * moments.at(std::min(k, j), std::max(k, j));
      EXPECT_NEAR(sum, i == j ? 1 : 0, 1e-9);
    }
  std::vector<double> singular = {1, 1, 1, 1};
  EXPECT_FALSE(invert_symmetric(singular, 2, pool));
}

// One row, weight by weight, with the scales that `block` has.
void greedy_reference(const PassMatrix& matrix, int64_t r, const SecondMoments& moments, double damping,
                      std::vector<uint8_t>& rows) {
  const Format& format = *matrix.format;
  const int64_t n = matrix.cols;
  ThreadPool pool(1);
  std::vector<double> w(matrix.values.begin() + r * n, matrix.values.begin() + (r + 1) * n);
  std::vector<int64_t> left;
  for (int64_t c = 0; c < n; ++c) left.push_back(c);
  while (!left.empty()) {
    const auto m = std::ssize(left);
    std::vector<double> h(static_cast<size_t>(m * m));
    for (int64_t a = 0; a < m; ++a)
      for (int64_t b = 0; b < m; ++b) {
        const int64_t i = left[static_cast<size_t>(a)], j = left[static_cast<size_t>(b)];
        h[static_cast<size_t>(a * m + b)] = moments.at(std::min(i, j), std::max(i, j)) + (i == j ? damping : 0);
      }
    ASSERT_TRUE(invert_symmetric(h, m, pool));
    int64_t best = 0;
    int best_level = 0;
    double least = std::numeric_limits<double>::infinity(), best_error = 0;
    LevelGrid grid(format);
    for (int64_t a = 0; a < m; ++a) {
      const int64_t c = left[static_cast<size_t>(a)];
      grid.read(rows.data() + r * format.row_bytes(n) + c / format.block_values * format.block_bytes);
      const auto place = static_cast<int>(c % format.block_values);
      const int level = grid.nearest(place, w[static_cast<size_t>(c)]);
      const double error = w[static_cast<size_t>(c)] - grid.at(place, level);
      const double cost = error * error / h[static_cast<size_t>(a * m + a)];
      if (cost >= least) continue;
      least = cost;
      best = a;
      best_level = level;
      best_error = error;
    }
    const int64_t c = left[static_cast<size_t>(best)];
    format.set_level(rows.data() + r * format.row_bytes(n) + c / format.block_values * format.block_bytes,
                     static_cast<int>(c % format.block_values), best_level);
    for (int64_t a = 0; a < m; ++a)
      w[static_cast<size_t>(left[static_cast<size_t>(a)])] -=
          best_error * h[static_cast<size_t>(a * m + best)] / h[static_cast<size_t>(best * m + best)];
    left.erase(left.begin() + best);
  }
}

TEST(Obq, ChoosesTheLevelsOfTheDefinition) {
  ThreadPool pool(3);
  for (const char* format : {"q4_0", "q5_1"}) {
    const int64_t rows = 7, cols = 64;
    const auto statistics = statistics_of(correlated_rows(cols * 2, cols, 21), cols, pool);
    PassMatrix matrix = matrix_of(rows, cols, format, 22);
    auto row = pass_of(std::string("obq:format=") + format)->apply(matrix, statistics, pool);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(row->action, "quantized");
    std::vector<uint8_t> want = matrix.encoded;  // for the scales
    for (int64_t i = 0; i < rows * cols; ++i)
      matrix.format->set_level(want.data() + i / matrix.format->block_values * matrix.format->block_bytes,
                               static_cast<int>(i % matrix.format->block_values), 0);
    for (int64_t r = 0; r < rows; ++r)
      greedy_reference(matrix, r, statistics.moments, 0.01 * statistics.moments.diagonal_mean(), want);
    EXPECT_EQ(matrix.encoded, want) << format;
    const double plain = squared_outputs(matrix.values, rounded_matrix(matrix), statistics.moments);
    EXPECT_LT(squared_outputs(matrix.values, whole_matrix(matrix), statistics.moments), 0.7 * plain) << format;
  }
}

TEST(Obq, ThreadsChangeNoBit) {
  std::vector<uint8_t> first;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto statistics = statistics_of(correlated_rows(100, 64, 5), 64, pool);
    PassMatrix matrix = matrix_of(21, 64, "q4_0", 6);
    ASSERT_TRUE(pass_of("wanda:sparsity=0.25")->apply(matrix, statistics, pool).ok());
    ASSERT_TRUE(pass_of("obq")->apply(matrix, statistics, pool).ok());
    const auto values = whole_matrix(matrix);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(matrix.kept[i] || values[i] == 0.0f) << i;
    if (first.empty()) first = matrix.encoded;
    EXPECT_EQ(matrix.encoded, first);
  }
}

TEST(Obq, LeavesWideMatrices) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(100, 64, 5), 64, pool);
  PassMatrix matrix = matrix_of(2, 64, "q4_0", 6);
  auto row = pass_of("obq:columns=63")->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_EQ(row->why, "64 columns are more than columns=63; the time grows with their cube, use gptq");
  EXPECT_TRUE(matrix.encoded.empty());
}

}  // namespace
}  // namespace millrace
