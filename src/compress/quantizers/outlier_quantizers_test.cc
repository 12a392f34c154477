// OWQ and SpQR: what stays beside the rounded matrix is exact, it is what the papers' measures choose, and outputs are
// nearer than GPTQ's.
#include <algorithm>
#include <numeric>
#include <set>

#include "compress/compress_test.h"
#include "compress/rounding/column_rounding.h"
#include "contains.h"

namespace millrace {
namespace {

using namespace testing;

// Weights of a heavy-tailed distribution, and some columns that are larger.
PassMatrix matrix_with_outliers(int64_t rows, int64_t cols, const char* format, uint32_t seed) {
  PassMatrix out = matrix_of(rows, cols, format, seed);
  for (size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] *= out.values[i] * out.values[i];
    if (i % static_cast<size_t>(cols) % 50 == 7) out.values[i] *= 3;
  }
  return out;
}

TEST(Owq, WeakColumnsStayExact) {
  ThreadPool pool(2);
  const int64_t rows = 24, cols = 128, weak = 5;
  const auto statistics = statistics_of(correlated_rows(400, cols, 3), cols, pool);
  const PassMatrix original = matrix_with_outliers(rows, cols, "q4_1", 4);
  PassMatrix matrix = original;
  auto row = pass_of("owq:format=q4_1,part=0.04")->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "quantized");
  // The paper's sensitivity, by the plain definition.
  const std::vector<float> plain = rounded_matrix(original);
  std::vector<double> sensitivity(static_cast<size_t>(cols));
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r)
      sensitivity[static_cast<size_t>(c)] += std::pow(double{original.values[static_cast<size_t>(r * cols + c)]} -
                                                          plain[static_cast<size_t>(r * cols + c)],
                                                      2) *
                                             statistics.moments.at(c, c);
  std::vector<int64_t> order(static_cast<size_t>(cols));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, std::greater{}, [&](int64_t c) { return sensitivity[static_cast<size_t>(c)]; });
  const std::set<int64_t> expected(order.begin(), order.begin() + weak);
  const std::vector<float> whole = whole_matrix(matrix);
  const std::set<int64_t> found(matrix.parts.columns.begin(), matrix.parts.columns.end());
  EXPECT_EQ(found, expected);
  for (int64_t c : expected)
    for (int64_t r = 0; r < rows; ++r) {
      // `values` are what the column became to make up for the errors before it.
      const float want = matrix.values[static_cast<size_t>(r * cols + c)];
      EXPECT_NEAR(whole[static_cast<size_t>(r * cols + c)], want, std::fabs(want) * 2e-3 + 1e-3);
    }
}

TEST(Spqr, OutliersAreExactAndTheMostSensitive) {
  ThreadPool pool(2);
  const int64_t rows = 16, cols = 256;
  const auto statistics = statistics_of(normal_values(600 * cols, 7), cols, pool);
  PassMatrix original = matrix_of(rows, cols, "q3_k", 8);
  std::set<int64_t> planted;
  for (int64_t i = 11; i < rows * cols; i += 173) {
    original.values[static_cast<size_t>(i)] = i % 2 ? 40.0f : -40.0f;
    planted.insert(i);
  }
  PassMatrix matrix = original;
  // Twice as many: without the smallest weight of a group with an outlier, its levels may fit the others better, too.
  const double part = (2 * static_cast<double>(planted.size()) + 0.5) / static_cast<double>(rows * cols);
  auto row = pass_of("spqr:format=q3_k,part=" + std::to_string(part))->apply(matrix, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "quantized");
  const SparseMatrix& sparse = matrix.parts.sparse;
  ASSERT_EQ(std::ssize(sparse.values), 2 * std::ssize(planted));
  const std::vector<float> whole = whole_matrix(matrix);
  std::set<int64_t> found;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = sparse.row_begin[static_cast<size_t>(r)]; k < sparse.row_begin[static_cast<size_t>(r + 1)]; ++k) {
      const int64_t c = sparse.columns[static_cast<size_t>(k)];
      if (k > sparse.row_begin[static_cast<size_t>(r)]) {
        EXPECT_LT(sparse.columns[static_cast<size_t>(k - 1)], c);
      }
      found.insert(r * cols + c);
      // `values` are what the outlier became to make up for the errors before it.
      EXPECT_NEAR(whole[static_cast<size_t>(r * cols + c)], matrix.values[static_cast<size_t>(r * cols + c)], 1e-4);
      if (planted.contains(r * cols + c)) {
        EXPECT_NEAR(whole[static_cast<size_t>(r * cols + c)], original.values[static_cast<size_t>(r * cols + c)], 10);
      }
    }
  EXPECT_TRUE(std::ranges::includes(found, planted));
}

TEST(OutlierQuantizers, OutputsAreNearerThanThoseOfGptq) {
  ThreadPool pool(2);
  const int64_t rows = 16, cols = 256;
  const auto statistics = statistics_of(correlated_rows(600, cols, 9), cols, pool);
  for (const char* format : {"q4_0", "q4_k", "q3_k"}) {
    const PassMatrix original = matrix_with_outliers(rows, cols, format, 10);
    PassMatrix gptq = original;
    ASSERT_TRUE(pass_of(std::string("gptq:fit=search,format=") + format)->apply(gptq, statistics, pool).ok());
    const double before = squared_outputs(original.values, whole_matrix(gptq), statistics.moments);
    for (const char* pass : {"owq:part=0.05,format=", "spqr:format="}) {
      PassMatrix matrix = original;
      ASSERT_TRUE(pass_of(pass + std::string(format))->apply(matrix, statistics, pool).ok());
      EXPECT_LT(squared_outputs(original.values, whole_matrix(matrix), statistics.moments), 0.95 * before)
          << pass << format;
    }
  }
}

TEST(OutlierQuantizers, ThreadsChangeNoBit) {
  for (const char* pass : {"owq:part=0.05", "spqr:format=q4_0,part=0.03"}) {
    std::vector<uint8_t> first;
    std::vector<float> values;
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      const auto statistics = statistics_of(correlated_rows(200, 96, 11), 96, pool);
      PassMatrix matrix = matrix_with_outliers(21, 96, "q4_0", 12);
      ASSERT_TRUE(pass_of(pass)->apply(matrix, statistics, pool).ok());
      if (first.empty()) first = matrix.encoded, values = whole_matrix(matrix);
      EXPECT_EQ(matrix.encoded, first);
      EXPECT_EQ(whole_matrix(matrix), values);
    }
  }
}

// After wanda: pruned weights stay zero, outliers or not.
TEST(OutlierQuantizers, PrunedWeightsStayZero) {
  ThreadPool pool(2);
  const auto statistics = statistics_of(correlated_rows(200, 96, 13), 96, pool);
  for (const char* pass : {"owq:part=0.05", "spqr:format=q4_0,part=0.03"}) {
    PassMatrix matrix = matrix_with_outliers(12, 96, "q4_0", 14);
    ASSERT_TRUE(pass_of("wanda:sparsity=0.5")->apply(matrix, statistics, pool).ok());
    ASSERT_TRUE(pass_of(pass)->apply(matrix, statistics, pool).ok());
    const std::vector<float> whole = whole_matrix(matrix);
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_TRUE(matrix.kept[i] || whole[i] == 0.0f) << pass << " " << i;
  }
}

TEST(OutlierQuantizers, LeaveWhatTheyCannotChange) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(100, 64, 15), 64, pool);
  for (const char* pass : {"owq", "spqr:format=q4_0"}) {
    PassMatrix matrix = matrix_of(4, 64, "q4_0", 16);
    matrix.parts.input.hadamard = 32;
    auto row = pass_of(pass)->apply(matrix, statistics, pool);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(row->why, "its inputs are changed already");
    PassMatrix table = matrix_of(4, 64, "q4_0", 16);
    table.no_parts = "an embedding table cannot have weight parts";
    ASSERT_TRUE(pass_of(pass)->apply(table, statistics, pool).ok());
    EXPECT_TRUE(table.parts.empty());
    EXPECT_FALSE(table.encoded.empty());
  }
}

}  // namespace
}  // namespace millrace
