// Optimal brain surgeon against brute force: each step tries every weight that is left, with the best answer of all
// others from a linear system.
#include <algorithm>

#include "compress/pruners/pruner_test.h"

namespace millrace {
namespace {

using namespace testing;

struct Answer {
  double loss = 0;
  std::vector<double> weights;
};

// The best weights of a row with zeros where `kept` says so.
Answer best_answer(const std::vector<double>& w, const std::vector<uint8_t>& kept, const Square& h) {
  std::vector<size_t> free, gone;
  for (size_t c = 0; c < w.size(); ++c) (kept[c] ? free : gone).push_back(c);
  Square inner(free.size(), std::vector<double>(free.size()));
  for (size_t i = 0; i < free.size(); ++i)
    for (size_t j = 0; j < free.size(); ++j) inner[i][j] = h[free[i]][free[j]];
  const Square inverse = inverse_of(inner);
  std::vector<double> error(w.size());
  for (size_t c : gone) error[c] = w[c];
  for (size_t i = 0; i < free.size(); ++i)
    for (size_t j = 0; j < free.size(); ++j)
      for (size_t c : gone) error[free[i]] -= inverse[i][j] * h[free[j]][c] * w[c];
  Answer out;
  for (size_t i = 0; i < w.size(); ++i) {
    for (size_t j = 0; j < w.size(); ++j) out.loss += error[i] * h[i][j] * error[j];
    out.weights.push_back(kept[i] ? w[i] - error[i] : 0);
  }
  return out;
}

void expect_brute_force(const std::string& options, int64_t cols, size_t count, size_t group) {
  const int64_t rows = 6;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto statistics = statistics_of(correlated_rows(40, cols, 5), cols, pool);
    const Square h = hessian_of(statistics, 0.01);
    PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
    const auto before = matrix.values;
    ASSERT_TRUE(pass_of(options)->apply(matrix, statistics, pool).ok());
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<double> w(before.begin() + r * cols, before.begin() + (r + 1) * cols);
      std::vector<uint8_t> kept(w.size(), 1);
      for (size_t step = 0; step < count * w.size() / group; ++step) {
        size_t best = w.size();
        double least = 0;
        for (size_t c = 0; c < w.size(); ++c) {
          const auto first = kept.begin() + static_cast<std::ptrdiff_t>(c / group * group);
          const auto gone = std::count(first, first + static_cast<std::ptrdiff_t>(group), 0);
          if (!kept[c] || gone == static_cast<std::ptrdiff_t>(count)) continue;
          kept[c] = 0;
          const double loss = best_answer(w, kept, h).loss;
          kept[c] = 1;
          if (best < w.size() && loss >= least) continue;
          best = c;
          least = loss;
        }
        kept[best] = 0;
      }
      const Answer want = best_answer(w, kept, h);
      for (size_t c = 0; c < w.size(); ++c) {
        const size_t at = static_cast<size_t>(r * cols) + c;
        ASSERT_EQ(matrix.kept[at], kept[c]) << options << " row " << r << " column " << c;
        ASSERT_NEAR(matrix.values[at], want.weights[c], 1e-4) << options << " row " << r << " column " << c;
      }
    }
  }
}

TEST(Obs, EachStepIsThatOfBruteForce) {
  expect_brute_force("obs:sparsity=0.5", 6, 3, 6);
  expect_brute_force("obs:sparsity=0.84", 6, 5, 6);
  expect_brute_force("obs:pattern=2:4", 8, 2, 4);
}

// More choice in each step, and all weights make up for it: less loss than SparseGPT, which has less than Wanda.
TEST(Obs, LosesLessThanSparseGpt) {
  const int64_t rows = 12, cols = 96;
  ThreadPool pool(2);
  const auto statistics = statistics_of(correlated_rows(400, cols, 5), cols, pool);
  const Square h = hessian_of(statistics, 0);
  const auto loss = [&](const std::string& options) {
    PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
    const auto before = matrix.values;
    EXPECT_TRUE(pass_of(options)->apply(matrix, statistics, pool).ok());
    expect_pruned(matrix, cols * rows, cols * rows / 2);
    return loss_of(matrix, before, h);
  };
  const double obs = loss("obs"), sparsegpt = loss("sparsegpt"), wanda = loss("wanda");
  EXPECT_LT(obs, 0.95 * sparsegpt);
  EXPECT_LT(sparsegpt, wanda);
}

TEST(Obs, CountsWhatAnEarlierPassPruned) {
  const int64_t cols = 16;
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(90, cols, 5), cols, pool);
  PassMatrix matrix = matrix_of(3, cols, "f32", 6);
  matrix.kept.assign(matrix.values.size(), 1);
  for (size_t i = 0; i < matrix.kept.size(); i += 4) matrix.kept[i] = 0;
  ASSERT_TRUE(pass_of("obs:pattern=2:4")->apply(matrix, statistics, pool).ok());
  expect_pruned(matrix, 4, 2);
  for (size_t i = 0; i < matrix.kept.size(); i += 4) EXPECT_EQ(matrix.kept[i], 0);
  for (size_t i = 0; i < matrix.kept.size(); ++i) EXPECT_EQ(matrix.kept[i] == 0, matrix.values[i] == 0) << i;
}

TEST(Obs, RefusesWideMatrices) {
  ThreadPool pool(1);
  PassMatrix matrix = matrix_of(1, 32, "f32", 6);
  matrix.name = "blk.0.ffn_down.weight";
  const auto statistics = statistics_of(correlated_rows(40, 32, 5), 32, pool);
  const auto row = pass_of("obs:widest=31")->apply(matrix, statistics, pool);
  ASSERT_FALSE(row.ok());
  EXPECT_EQ(row.error().message,
            "blk.0.ffn_down.weight: --pass obs would take very long for 32 columns, more than 31; use sparsegpt, or "
            "raise widest");
}

}  // namespace
}  // namespace millrace
