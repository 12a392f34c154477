// Fast pruning: ADMM against the exact answer for a mask, against the paper's loop, and against other pruners.
#include <algorithm>

#include "compress/pruners/pruner_test.h"

namespace millrace {
namespace {

using namespace testing;

// Of second moments with ones on their diagonal and `damp` added.
Square scaled_hessian(const LinearStatistics& statistics, double damp, std::vector<double>& norms) {
  Square h = hessian_of(statistics, 0);
  norms.clear();
  for (size_t i = 0; i < h.size(); ++i) norms.push_back(std::sqrt(h[i][i]));
  for (size_t i = 0; i < h.size(); ++i)
    for (size_t j = 0; j < h.size(); ++j) h[i][j] = h[i][j] / (norms[i] * norms[j]) + (i == j ? damp : 0);
  return h;
}

std::vector<double> times(const Square& a, const std::vector<double>& x) {
  std::vector<double> out(a.size());
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a.size(); ++j) out[i] += a[i][j] * x[j];
  return out;
}

struct PlainLoop {
  double sparsity = 0.5;
  int64_t steps = 15, iterations = 20;
  size_t group = 0, pruned = 0;  // of a pattern
};

// All rows at once, as the paper has it; what is left of each weight, times the norm of its input.
Square loop_plainly(Square w, const Square& h, const PlainLoop& options) {
  Square shifted = h, right, v = w, u(w.size(), std::vector<double>(h.size())), z = u;
  for (size_t i = 0; i < h.size(); ++i) shifted[i][i] += 1;
  const Square inverse = inverse_of(shifted);
  for (const auto& row : w) right.push_back(times(h, row));
  std::vector<std::vector<uint8_t>> mask;
  const auto masked = [&](size_t r, size_t c) { return mask[r][c] ? v[r][c] + u[r][c] : 0; };
  for (int64_t t = 1; t <= options.iterations; ++t) {
    if (t <= options.steps) {
      const double part = 1 - std::pow(1 - static_cast<double>(t) / static_cast<double>(options.steps), 3);
      mask.assign(w.size(), std::vector<uint8_t>(h.size(), 1));
      std::vector<std::tuple<double, size_t, size_t>> all;
      const auto prune = [&](double count) {
        std::ranges::sort(all);
        for (size_t i = 0; i < static_cast<size_t>(std::round(part * count)); ++i)
          mask[std::get<1>(all[i])][std::get<2>(all[i])] = 0;
        all.clear();
      };
      for (size_t r = 0; r < w.size(); ++r)
        for (size_t c = 0; c < h.size(); ++c) {
          all.emplace_back(std::fabs(v[r][c] + u[r][c]), r, c);
          if (options.group > 0 && (c + 1) % options.group == 0) prune(static_cast<double>(options.pruned));
        }
      if (options.group == 0) prune(std::floor(options.sparsity * static_cast<double>(all.size())));
    }
    for (size_t r = 0; r < w.size(); ++r) {
      std::vector<double> target(h.size());
      for (size_t c = 0; c < h.size(); ++c) {
        z[r][c] = masked(r, c);
        u[r][c] += v[r][c] - z[r][c];
        target[c] = right[r][c] + z[r][c] - u[r][c];
      }
      v[r] = times(inverse, target);
    }
  }
  for (size_t r = 0; r < w.size(); ++r)
    for (size_t c = 0; c < h.size(); ++c) z[r][c] = masked(r, c);
  return z;
}

TEST(FastPruning, IsThePapersLoop) {
  const int64_t rows = 11, cols = 24;
  const std::vector<std::pair<std::string, PlainLoop>> cases = {
      {"fast_pruning", {}},
      {"fast_pruning:sparsity=0.7,steps=1,iterations=4", {.sparsity = 0.7, .steps = 1, .iterations = 4}},
      {"fast_pruning:steps=30,iterations=9", {.steps = 9, .iterations = 9}},
      {"fast_pruning:pattern=2:4", {.group = 4, .pruned = 2}},
      {"fast_pruning:scope=row", {.group = 24, .pruned = 12}}};
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto statistics = statistics_of(correlated_rows(90, cols, 5), cols, pool);
    std::vector<double> norms;
    const Square h = scaled_hessian(statistics, 0.1, norms);
    for (const auto& [text, options] : cases) {
      PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
      Square w;
      for (int64_t i = 0; i < rows * cols; ++i) {
        if (i % cols == 0) w.emplace_back();
        w.back().push_back(matrix.values[static_cast<size_t>(i)] * norms[static_cast<size_t>(i % cols)]);
      }
      const Square want = loop_plainly(w, h, options);
      ASSERT_EQ(pass_of(text)->apply(matrix, statistics, pool)->action, "pruned");
      for (int64_t i = 0; i < rows * cols; ++i) {
        const auto c = static_cast<size_t>(i % cols);
        const double value = want[static_cast<size_t>(i / cols)][c] / norms[c];
        ASSERT_EQ(matrix.kept[static_cast<size_t>(i)] == 0, value == 0) << text << " " << i;
        ASSERT_NEAR(matrix.values[static_cast<size_t>(i)], value, 1e-4) << text << " " << i;
      }
    }
  }
}

// Of a mask that is given, the update comes to the least squares solution of every row.
TEST(FastPruning, ConvergesToTheBestWeightsOfAMask) {
  const int64_t rows = 7, cols = 24;
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(90, cols, 5), cols, pool);
  std::vector<double> norms;
  const Square h = scaled_hessian(statistics, 0.1, norms);
  PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
  const auto before = matrix.values;
  ASSERT_TRUE(pass_of("wanda:sparsity=0.5")->apply(matrix, statistics, pool).ok());
  const auto mask = matrix.kept;
  ASSERT_TRUE(pass_of("fast_pruning:sparsity=0,iterations=500")->apply(matrix, statistics, pool).ok());
  EXPECT_EQ(matrix.kept, mask);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    std::vector<double> w;
    std::vector<size_t> left;
    for (size_t c = 0; c < norms.size(); ++c) {
      w.push_back(before[r * norms.size() + c] * norms[c]);
      if (mask[r * norms.size() + c]) left.push_back(c);
    }
    const std::vector<double> right = times(h, w);
    Square inner(left.size(), std::vector<double>(left.size()));
    std::vector<double> part;
    for (size_t i = 0; i < left.size(); ++i) {
      part.push_back(right[left[i]]);
      for (size_t j = 0; j < left.size(); ++j) inner[i][j] = h[left[i]][left[j]];
    }
    const std::vector<double> best = times(inverse_of(inner), part);
    for (size_t i = 0; i < left.size(); ++i)
      EXPECT_NEAR(matrix.values[r * norms.size() + left[i]], best[i] / norms[left[i]], 1e-4) << r << " " << left[i];
  }
}

// By the outputs on inputs that it did not see.
TEST(FastPruning, LosesLessThanOtherPruners) {
  const int64_t rows = 37, cols = 96;
  ThreadPool pool(2);
  const std::vector<float> x = correlated_rows(1800, cols, 5);
  const auto middle = x.begin() + 900 * cols;
  const auto statistics = statistics_of({x.begin(), middle}, cols, pool);
  const Square held_out = hessian_of(statistics_of({middle, x.end()}, cols, pool), 0);
  const auto loss = [&](const std::string& options, int threads) {
    ThreadPool own(threads);
    PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
    const auto before = matrix.values;
    EXPECT_TRUE(pass_of(options)->apply(matrix, statistics, own).ok());
    return loss_of(matrix, before, held_out);
  };
  for (const std::string pattern : {"sparsity=0.5", "sparsity=0.7", "pattern=2:4"}) {
    const double fast = loss("fast_pruning:" + pattern, 1), wanda = loss("wanda:" + pattern, 1);
    EXPECT_EQ(fast, loss("fast_pruning:" + pattern, 3));
    EXPECT_LT(fast, loss("fast_pruning:steps=1," + pattern, 1)) << pattern;
    EXPECT_LT(fast, loss("sparsegpt:" + pattern, 1)) << pattern;
    EXPECT_LT(fast, 0.8 * wanda) << pattern;
  }
}

TEST(FastPruning, LeavesWhatItCannotPrune) {
  ThreadPool pool(1);
  auto statistics = statistics_of(std::vector<float>(60), 6, pool);
  PassMatrix matrix = matrix_of(2, 6, "f32", 6);
  EXPECT_EQ(pass_of("fast_pruning")->apply(matrix, statistics, pool)->why, "its inputs are all zero or not finite");
  EXPECT_EQ(pass_of("fast_pruning:pattern=2:4")->apply(matrix, statistics, pool)->why,
            "6 columns are not a multiple of 4");
  EXPECT_TRUE(matrix.kept.empty());
}

// A column without inputs goes first, and nothing becomes infinite.
TEST(FastPruning, TakesColumnsWithoutInputs) {
  const int64_t rows = 5, cols = 16;
  ThreadPool pool(1);
  std::vector<float> x = correlated_rows(90, cols, 5);
  for (size_t i = 3; i < x.size(); i += static_cast<size_t>(cols)) x[i] = 0;
  const auto statistics = statistics_of(x, cols, pool);
  PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
  ASSERT_TRUE(pass_of("fast_pruning")->apply(matrix, statistics, pool).ok());
  for (int64_t r = 0; r < rows; ++r) EXPECT_TRUE(matrix.pruned(r, 3)) << r;
  for (float value : matrix.values) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace millrace
