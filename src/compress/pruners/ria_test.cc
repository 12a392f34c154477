// RIA's mask against a sort of the plain scores, and its channel permutation.
#include <algorithm>
#include <numeric>

#include "compress/matrix_parts.h"
#include "compress/pruners/assignment.h"
#include "compress/pruners/pruner_test.h"

namespace millrace {
namespace {

using namespace testing;

std::vector<double> plain_ria(const PassMatrix& matrix, const LinearStatistics& statistics, double power) {
  std::vector<double> out;
  for (int64_t r = 0; r < matrix.rows; ++r)
    for (int64_t c = 0; c < matrix.cols; ++c) {
      const auto size = [&](int64_t row, int64_t col) {
        return std::fabs(double{matrix.values[static_cast<size_t>(row * matrix.cols + col)]});
      };
      double column = 0, line = 0;
      for (int64_t i = 0; i < matrix.rows; ++i) column += size(i, c);
      for (int64_t i = 0; i < matrix.cols; ++i) line += size(r, i);
      out.push_back((size(r, c) / column + size(r, c) / line) *
                    std::pow(statistics.squares[static_cast<size_t>(c)], power / 2));
    }
  return out;
}

std::vector<uint8_t> lowest_mask(const std::vector<double>& scores, int64_t group, int64_t count) {
  std::vector<uint8_t> kept(scores.size(), 1);
  for (int64_t begin = 0; begin < std::ssize(kept); begin += group) {
    std::vector<int64_t> at(static_cast<size_t>(group));
    std::iota(at.begin(), at.end(), begin);
    std::ranges::stable_sort(at, {}, [&](int64_t i) { return scores[static_cast<size_t>(i)]; });
    for (int64_t i = 0; i < count; ++i) kept[static_cast<size_t>(at[static_cast<size_t>(i)])] = 0;
  }
  return kept;
}

TEST(Ria, PrunesTheLowestScores) {
  const int64_t rows = 13, cols = 96, all = rows * cols;
  struct RiaCase {
    const char* options;
    double power;
    int64_t group, count;
  };
  for (const RiaCase& one : {RiaCase{"ria", 0.5, all, all / 2}, RiaCase{"ria:power=0,sparsity=0.25", 0, all, all / 4},
                             RiaCase{"ria:power=1,scope=row", 1, cols, 48}, RiaCase{"ria:pattern=2:4", 0.5, 4, 2}}) {
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      const auto statistics = statistics_of(correlated_rows(70, cols, 5), cols, pool);
      PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
      matrix.values[0] = 0;
      const auto before = matrix.values;
      const auto want = lowest_mask(plain_ria(matrix, statistics, one.power), one.group, one.count);
      ASSERT_TRUE(pass_of(one.options)->apply(matrix, statistics, pool).ok());
      EXPECT_EQ(matrix.kept, want) << one.options;
      EXPECT_EQ(matrix.values, before);
    }
  }
}

// What the score is for: a column of small weights is not lost as a whole, as it is by magnitude.
TEST(Ria, KeepsAColumnOfSmallWeights) {
  ThreadPool pool(1);
  LinearStatistics statistics;
  statistics.rows = 1;
  statistics.squares.assign(16, 1.0);
  PassMatrix ria = matrix_of(16, 16, "f32", 6);
  for (size_t r = 0; r < 16; ++r) ria.values[r * 16 + 3] *= 0.01f;
  PassMatrix magnitude = ria;
  ASSERT_TRUE(pass_of("ria")->apply(ria, statistics, pool).ok());
  ASSERT_TRUE(pass_of("magnitude")->apply(magnitude, statistics, pool).ok());
  int64_t kept_by_ria = 0, kept_by_magnitude = 0;
  for (size_t r = 0; r < 16; ++r) {
    kept_by_ria += ria.kept[r * 16 + 3];
    kept_by_magnitude += magnitude.kept[r * 16 + 3];
  }
  EXPECT_EQ(kept_by_magnitude, 0);
  EXPECT_GE(kept_by_ria, 1);
}

TEST(Ria, PermutedColumnsKeepMoreAndMultiplyTheSameInputs) {
  const int64_t rows = 24, cols = 64;
  for (const std::string pattern : {"2:4", "1:4", "4:8", "4:4"}) {
    std::vector<int32_t> first;
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      const auto statistics = statistics_of(correlated_rows(90, cols, 5), cols, pool);
      PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
      // Neighbours that are important together: the worst case of groups of neighbours.
      for (int64_t i = 0; i < rows * cols; ++i)
        if (i % cols < cols / 4) matrix.values[static_cast<size_t>(i)] *= 8;
      const auto before = matrix.values;
      const auto row = pass_of("ria:permute=true,pattern=" + pattern)->apply(matrix, statistics, pool);
      ASSERT_TRUE(row.ok());
      ASSERT_EQ(row->figures.size(), 2u);
      if (pattern == "4:4")
        EXPECT_EQ(row->figures[1].second, 1);
      else
        EXPECT_GT(row->figures[1].second, 1.02 * row->figures[0].second) << pattern;
      expect_pruned(matrix, pattern[2] - '0', pattern[2] - pattern[0]);
      std::vector<int32_t> order = matrix.parts.input.order;
      if (first.empty()) first = order;
      EXPECT_EQ(order, first);
      auto values = matrix.values;
      apply_parts(matrix, values, pool);
      EXPECT_EQ(values, before);
      std::ranges::sort(order);
      for (int32_t c = 0; c < cols; ++c) EXPECT_EQ(order[static_cast<size_t>(c)], c);
    }
  }
}

TEST(Ria, StacksOfExpertsKeepTheirOrder) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(90, 16, 5), 16, pool);
  PassMatrix matrix = matrix_of(4, 16, "f32", 6);
  matrix.no_parts = "a stack";
  const auto row = pass_of("ria:permute=true,pattern=2:4")->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->why, "its columns stay in their order: a stack");
  EXPECT_TRUE(matrix.parts.input.empty());
  expect_pruned(matrix, 4, 2);
}

TEST(Ria, SaysWhatIsWrong) {
  EXPECT_EQ(make_pass("ria:permute=true").error().message,
            "pass ria: permute: columns are put into groups, so give a pattern, such as pattern=2:4");
}

TEST(Assignment, IsTheBestOfAllPermutations) {
  for (uint32_t seed = 1; seed < 30; ++seed) {
    const int64_t n = 1 + seed % 6;
    const std::vector<float> random = normal_values(n * n, seed);
    std::vector<double> values(random.begin(), random.end());
    if (seed % 3 == 0)
      for (double& value : values) value = std::round(value);  // many equal ones
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    const auto total = [&](const std::vector<int32_t>& columns) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += values[static_cast<size_t>(i * n + columns[static_cast<size_t>(i)])];
      return sum;
    };
    double best = -1e300;
    do best = std::max(best, total(order));
    while (std::ranges::next_permutation(order).found);
    std::vector<int32_t> found = best_assignment(values, n);
    EXPECT_NEAR(total(found), best, 1e-9) << seed;
    std::ranges::sort(found);
    for (int32_t i = 0; i < n; ++i) EXPECT_EQ(found[static_cast<size_t>(i)], i);
  }
}

}  // namespace
}  // namespace millrace
