// SparseGPT and ISC against the paper's algorithm with explicit inverses, and against pruners that move no weight.
#include <algorithm>

#include "compress/pruners/pruner_test.h"

namespace millrace {
namespace {

using namespace testing;

struct PlainOptions {
  double sparsity = 0.5;
  int64_t block = 8;
  int64_t keep = 0, of = 0;
  bool obd = false;  // ISC's saliency
};

// One column after the other: with the inverse of H for the columns that are left, the column's weight is pruned and
// the later weights of the row are moved.
void prune_plainly(std::vector<std::vector<double>>& w, std::vector<std::vector<uint8_t>>& kept, const Square& h,
                   const PlainOptions& options) {
  const size_t cols = h.size();
  const auto step = static_cast<size_t>(options.of > 0 ? options.of : options.block);
  std::vector<Square> inverses;
  for (size_t c = 0; c < cols; ++c) inverses.push_back(inverse_of(tail_of(h, c)));
  const auto saliency = [&](size_t r, size_t c) {
    return w[r][c] * w[r][c] * (1 / inverses[c][0][0] + (options.obd ? h[c][c] : 0));
  };
  for (size_t begin = 0; begin < cols; begin += step) {
    const size_t end = std::min(cols, begin + step);
    std::vector<std::pair<double, std::pair<size_t, size_t>>> all;
    for (size_t r = 0; r < w.size(); ++r) {
      for (size_t c = begin; c < end; ++c) all.push_back({saliency(r, c), {r, c}});
      if (options.of == 0 && r + 1 < w.size()) continue;
      std::ranges::sort(all);
      const auto count = options.of > 0 ? static_cast<size_t>(options.of - options.keep)
                                        : static_cast<size_t>(options.sparsity * static_cast<double>(all.size()));
      for (size_t i = 0; i < count; ++i) kept[all[i].second.first][all[i].second.second] = 0;
      all.clear();
    }
    for (size_t c = begin; c < end; ++c)
      for (size_t r = 0; r < w.size(); ++r) {
        if (kept[r][c]) continue;
        const double error = w[r][c] / inverses[c][0][0];
        for (size_t k = c; k < cols; ++k) w[r][k] -= error * inverses[c][0][k - c];
        w[r][c] = 0;
      }
  }
}

void expect_plain(const std::string& pass, const PlainOptions& options) {
  const int64_t rows = 11, cols = 24;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto statistics = statistics_of(correlated_rows(90, cols, 5), cols, pool);
    PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
    std::vector<std::vector<double>> w;
    for (int64_t r = 0; r < rows; ++r)
      w.emplace_back(matrix.values.begin() + r * cols, matrix.values.begin() + (r + 1) * cols);
    std::vector<std::vector<uint8_t>> kept(w.size(), std::vector<uint8_t>(static_cast<size_t>(cols), 1));
    prune_plainly(w, kept, hessian_of(statistics, 0.01), options);
    auto row = pass_of(pass)->apply(matrix, statistics, pool);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(row->action, "pruned");
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto r = static_cast<size_t>(i / cols), c = static_cast<size_t>(i % cols);
      ASSERT_EQ(matrix.kept[static_cast<size_t>(i)], kept[r][c]) << pass << " " << r << " " << c;
      ASSERT_NEAR(matrix.values[static_cast<size_t>(i)], w[r][c], 1e-4) << pass << " " << r << " " << c;
    }
  }
}

TEST(SparseGpt, IsThePapersAlgorithm) {
  expect_plain("sparsegpt:block=8", {});
  expect_plain("sparsegpt:block=7,sparsity=0.7", {.sparsity = 0.7, .block = 7});
  expect_plain("sparsegpt", {.block = 128});
  expect_plain("sparsegpt:pattern=2:4", {.keep = 2, .of = 4});
  expect_plain("sparsegpt:pattern=1:8,block=8", {.keep = 1, .of = 8});
}

TEST(Isc, AddsTheLossWithoutCorrection) {
  const auto with = [](const std::string& options) {
    ThreadPool pool(2);
    const auto statistics = statistics_of(correlated_rows(90, 24, 5), 24, pool);
    PassMatrix matrix = matrix_of(11, 24, "f32", 6);
    auto pass = pass_of(options);
    for (int time = 0; time < pass->surveys(); ++time) pass->survey(time, matrix, statistics, pool);
    EXPECT_TRUE(pass->apply(matrix, statistics, pool).ok());
    return matrix;
  };
  const PassMatrix isc = with("isc:block=8"), sparsegpt = with("sparsegpt:block=8");
  EXPECT_NE(isc.kept, sparsegpt.kept);
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(90, 24, 5), 24, pool);
  PassMatrix matrix = matrix_of(11, 24, "f32", 6);
  std::vector<std::vector<double>> w;
  for (int64_t r = 0; r < 11; ++r) w.emplace_back(matrix.values.begin() + r * 24, matrix.values.begin() + (r + 1) * 24);
  std::vector<std::vector<uint8_t>> kept(w.size(), std::vector<uint8_t>(24, 1));
  prune_plainly(w, kept, hessian_of(statistics, 0.01), {.obd = true});
  for (size_t i = 0; i < isc.kept.size(); ++i) {
    ASSERT_EQ(isc.kept[i], kept[i / 24][i % 24]) << i;
    ASSERT_NEAR(isc.values[i], w[i / 24][i % 24], 1e-4) << i;
  }
}

// Wide enough for several tiles of rows and blocks of columns.
TEST(SparseGpt, LosesLessThanPrunersThatMoveNoWeight) {
  const int64_t rows = 37, cols = 300;
  ThreadPool pool(2);
  const auto statistics = statistics_of(correlated_rows(900, cols, 5), cols, pool);
  const Square h = hessian_of(statistics, 0);
  const auto loss = [&](const std::string& options, int threads) {
    ThreadPool own(threads);
    PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
    const auto before = matrix.values;
    EXPECT_TRUE(pass_of(options)->apply(matrix, statistics, own).ok());
    return loss_of(matrix, before, h);
  };
  for (const std::string pattern : {"sparsity=0.5", "pattern=2:4"}) {
    const double sparsegpt = loss("sparsegpt:" + pattern, 1);
    EXPECT_EQ(sparsegpt, loss("sparsegpt:" + pattern, 3));
    const double wanda = loss("wanda:" + pattern, 1), magnitude = loss("magnitude:" + pattern, 1);
    EXPECT_LT(sparsegpt, 0.8 * wanda) << pattern;
    EXPECT_LT(wanda, magnitude) << pattern;
  }
}

TEST(SparseGpt, MakesUpForWhatAnEarlierPassPruned) {
  const int64_t rows = 16, cols = 64;
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(200, cols, 5), cols, pool);
  PassMatrix wanda = matrix_of(rows, cols, "f32", 6), both = wanda;
  const auto before = wanda.values;
  ASSERT_TRUE(pass_of("wanda:sparsity=0.5")->apply(wanda, statistics, pool).ok());
  ASSERT_TRUE(pass_of("wanda:sparsity=0.5")->apply(both, statistics, pool).ok());
  ASSERT_TRUE(pass_of("sparsegpt:sparsity=0")->apply(both, statistics, pool).ok());
  EXPECT_EQ(wanda.kept, both.kept);
  const Square h = hessian_of(statistics, 0);
  EXPECT_LT(loss_of(both, before, h), 0.8 * loss_of(wanda, before, h));
}

TEST(SparseGpt, LeavesWhatItCannotPrune) {
  ThreadPool pool(1);
  auto statistics = statistics_of(std::vector<float>(60), 6, pool);
  PassMatrix matrix = matrix_of(2, 6, "f32", 6);
  EXPECT_EQ(pass_of("sparsegpt")->apply(matrix, statistics, pool)->why, "its inputs are all zero or not finite");
  EXPECT_EQ(pass_of("sparsegpt:pattern=2:4")->apply(matrix, statistics, pool)->why,
            "6 columns are not a multiple of 4");
  EXPECT_TRUE(matrix.kept.empty());
}

}  // namespace
}  // namespace millrace
