// QuantEase: never above GPTQ's objective on the same grid, and at its end no single level brings it further down.
#include "compress/compress_test.h"
#include "compress/rounding/level_grid.h"
#include "contains.h"

namespace millrace {
namespace {

using namespace testing;

struct DescentCase {
  const char* format;
  int64_t rows, cols;
};
void PrintTo(const DescentCase& one, std::ostream* out) { *out << one.format << " " << one.rows << " x " << one.cols; }

class QuantEaseOf : public ::testing::TestWithParam<DescentCase> {};

TEST_P(QuantEaseOf, IsBelowItsStartOnTheSameGrid) {
  const auto [format, rows, cols] = GetParam();
  ThreadPool pool(2);
  const auto statistics = statistics_of(correlated_rows(cols * 2, cols, 31), cols, pool);
  double all_starts = 0, all_ends = 0;
  for (const char* fit : {"plain", "search"}) {
    const std::string options = std::string(":format=") + format + ",fit=" + fit;
    PassMatrix gptq = matrix_of(rows, cols, format, 32), ours = gptq;
    ASSERT_TRUE(pass_of("gptq" + options)->apply(gptq, statistics, pool).ok());
    auto row = pass_of("quantease:iterations=50," + options.substr(1))->apply(ours, statistics, pool);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(row->action, "quantized");
    const double start = squared_outputs(gptq.values, whole_matrix(gptq), statistics.moments);
    const double end = squared_outputs(ours.values, whole_matrix(ours), statistics.moments);
    EXPECT_LE(end, start * (1 + 1e-9)) << fit;
    EXPECT_GT(end, 0.3 * start) << fit;
    all_starts += start;
    all_ends += end;
    // The scales are the start's: with all levels the same, so are the blocks.
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int64_t block = i / ours.format->block_values;
      for (PassMatrix* one : {&gptq, &ours})
        one->format->set_level(one->encoded.data() + block * one->format->block_bytes,
                               static_cast<int>(i % one->format->block_values), 0);
    }
    EXPECT_EQ(gptq.encoded, ours.encoded) << fit;
  }
  EXPECT_LT(all_ends, all_starts);
}

// Brute force: every level of every weight.
TEST_P(QuantEaseOf, EndsWhereNoSingleLevelIsBetter) {
  const auto [format, rows, cols] = GetParam();
  ThreadPool pool(2);
  const auto statistics = statistics_of(correlated_rows(cols * 2, cols, 31), cols, pool);
  PassMatrix matrix = matrix_of(1, cols, format, 33);
  ASSERT_TRUE(pass_of(std::string("quantease:start=rounded,iterations=500,format=") + format)
                  ->apply(matrix, statistics, pool)
                  .ok());
  const std::vector<float> found = whole_matrix(matrix);
  EXPECT_LT(squared_outputs(matrix.values, found, statistics.moments),
            squared_outputs(matrix.values, rounded_matrix(matrix), statistics.moments));
  std::vector<double> slope(static_cast<size_t>(cols));  // H e
  for (int64_t i = 0; i < cols; ++i)
    for (int64_t j = 0; j < cols; ++j)
      slope[static_cast<size_t>(i)] += statistics.moments.at(std::min(i, j), std::max(i, j)) *
                                       (double{matrix.values[static_cast<size_t>(j)]} - found[static_cast<size_t>(j)]);
  LevelGrid grid(*matrix.format);
  for (int64_t c = 0; c < cols; ++c) {
    const int size = matrix.format->block_values;
    grid.read(matrix.encoded.data() + c / size * matrix.format->block_bytes);
    for (int level = 0; level < matrix.format->levels; ++level) {
      const double step = double{grid.at(static_cast<int>(c % size), level)} - found[static_cast<size_t>(c)];
      const double change = step * step * statistics.moments.at(c, c) - 2 * step * slope[static_cast<size_t>(c)];
      ASSERT_GE(change, -1e-5 * std::fabs(step * slope[static_cast<size_t>(c)])) << c << " " << level;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantEaseOf,
                         ::testing::Values(DescentCase{"q4_0", 12, 96}, DescentCase{"q4_1", 5, 64},
                                           DescentCase{"iq4_nl", 8, 32}, DescentCase{"q3_k", 3, 256},
                                           DescentCase{"q2_k", 2, 256}),
                         [](const auto& one) { return std::string(one.param.format); });

TEST(QuantEase, KeepsPrunedWeightsAndThreadsChangeNoBit) {
  std::vector<uint8_t> first;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto statistics = statistics_of(correlated_rows(200, 96, 5), 96, pool);
    PassMatrix matrix = matrix_of(21, 96, "q4_0", 6);
    ASSERT_TRUE(pass_of("wanda:sparsity=0.5")->apply(matrix, statistics, pool).ok());
    ASSERT_TRUE(pass_of("quantease")->apply(matrix, statistics, pool).ok());
    const auto values = whole_matrix(matrix);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(matrix.kept[i] || values[i] == 0.0f) << i;
    if (first.empty()) first = matrix.encoded;
    EXPECT_EQ(matrix.encoded, first);
  }
}

TEST(QuantEase, RefusesOptions) {
  EXPECT_EQ(make_pass("quantease:start=zero").error().message, "pass quantease: start 'zero': must be gptq or rounded");
}

}  // namespace
}  // namespace millrace
