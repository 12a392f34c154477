// DSnoT's swaps against a plain loop over the paper's formulas.
#include "compress/pruners/pruner_test.h"

namespace millrace {
namespace {

using namespace testing;

LinearStatistics with_sums(const std::vector<float>& x, int64_t cols, ThreadPool& pool) {
  LinearStatistics out = statistics_of(x, cols, pool);
  out.sums.resize(static_cast<size_t>(cols));
  for (size_t i = 0; i < x.size(); ++i) out.sums[i % static_cast<size_t>(cols)] += x[i];
  return out;
}

// Inputs with means that matter.
std::vector<float> shifted_rows(int64_t rows, int64_t cols) {
  std::vector<float> x = correlated_rows(rows, cols, 5);
  for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(i % static_cast<size_t>(cols) % 5) - 2;
  return x;
}

double error_of(const PassMatrix& matrix, const LinearStatistics& statistics, int64_t row) {
  double error = 0;
  for (int64_t c = 0; c < matrix.cols; ++c)
    if (matrix.pruned(row, c))
      error += double{matrix.values[static_cast<size_t>(row * matrix.cols + c)]} *
               statistics.sums[static_cast<size_t>(c)] / static_cast<double>(statistics.rows);
  return error;
}

// One cycle of one row; false: nothing can be swapped.
bool swap_plainly(PassMatrix& matrix, const LinearStatistics& statistics, int64_t row, int64_t group) {
  const double rows = static_cast<double>(statistics.rows), error = error_of(matrix, statistics, row);
  const auto mean = [&](int64_t c) { return statistics.sums[static_cast<size_t>(c)] / rows; };
  const auto weight = [&](int64_t c) { return double{matrix.values[static_cast<size_t>(row * matrix.cols + c)]}; };
  int64_t grow = -1, prune = -1;
  double most = 0, least = 1e300;
  for (int64_t c = 0; c < matrix.cols; ++c) {
    const double variance = statistics.squares[static_cast<size_t>(c)] / rows - mean(c) * mean(c);
    const double gain = (error > 0 ? 1 : -1) * weight(c) * mean(c) / variance;
    if (!matrix.pruned(row, c) || gain <= most) continue;
    most = gain;
    grow = c;
  }
  for (int64_t c = 0; grow >= 0 && c < matrix.cols; ++c) {
    const double score = std::fabs(weight(c)) * std::sqrt(statistics.squares[static_cast<size_t>(c)]);
    if (c / group != grow / group || matrix.pruned(row, c) || (error > 0 ? 1 : -1) * weight(c) * mean(c) >= 0) continue;
    if (score >= least) continue;
    least = score;
    prune = c;
  }
  if (prune < 0) return false;
  const double after = error - weight(grow) * mean(grow) + weight(prune) * mean(prune);
  if (std::fabs(after) >= std::fabs(error)) return false;
  matrix.kept[static_cast<size_t>(row * matrix.cols + grow)] = 1;
  matrix.kept[static_cast<size_t>(row * matrix.cols + prune)] = 0;
  return true;
}

TEST(Dsnot, SwapsAsThePaperSays) {
  const int64_t rows = 17, cols = 48;
  struct DsnotCase {
    std::string start, options;
    int64_t group, pruned, cycles;
    double threshold;
  };
  for (const DsnotCase& one :
       {DsnotCase{"wanda:sparsity=0.5", "dsnot:threshold=0.001", cols, 24, 50, 0.001},
        DsnotCase{"wanda:sparsity=0.75", "dsnot:sparsity=0.75,cycles=3,threshold=0", cols, 36, 3, 0},
        DsnotCase{"wanda:pattern=2:4", "dsnot:pattern=2:4,threshold=0.01", 4, 2, 50, 0.01},
        DsnotCase{"magnitude:scope=row", "dsnot:start=magnitude", cols, 24, 50, 0.1}}) {
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      const auto statistics = with_sums(shifted_rows(80, cols), cols, pool);
      PassMatrix want = matrix_of(rows, cols, "f32", 6), got = want;
      ASSERT_TRUE(pass_of(one.start)->apply(want, statistics, pool).ok());
      const PassMatrix start = want;
      int64_t swaps = 0;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t cycle = 0; cycle < one.cycles; ++cycle) {
          if (std::fabs(error_of(want, statistics, r)) < one.threshold) break;
          if (!swap_plainly(want, statistics, r, one.group)) break;
          ++swaps;
        }
      const auto row = pass_of(one.options)->apply(got, statistics, pool);
      ASSERT_TRUE(row.ok());
      EXPECT_EQ(got.kept, want.kept) << one.options;
      EXPECT_NEAR(row->figures.at(0).second, static_cast<double>(swaps) / rows, 1e-9);
      EXPECT_GT(swaps, rows / 2) << one.options;
      expect_pruned(got, one.group, one.pruned);
      for (int64_t r = 0; r < rows; ++r)
        EXPECT_LE(std::fabs(error_of(got, statistics, r)), std::fabs(error_of(start, statistics, r))) << r;
    }
  }
}

TEST(Dsnot, SaysWhatIsWrong) {
  EXPECT_EQ(make_pass("dsnot:start=ria").error().message, "pass dsnot: start 'ria': must be wanda or magnitude");
}

}  // namespace
}  // namespace millrace
