// Pruner-Zero: the published formula against its plain definition, formulas as text, and the search.
#include <algorithm>
#include <numeric>

#include "compress/pruners/pruner_test.h"
#include "compress/pruners/score_expression.h"
#include "contains.h"

namespace millrace {
namespace {

using namespace testing;

LinearStatistics random_statistics(int64_t cols, ThreadPool& pool) {
  return statistics_of(correlated_rows(200, cols, 5), cols, pool);
}

TEST(PrunerZero, PrunesByThePublishedFormula) {
  const int64_t rows = 9, cols = 24;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const LinearStatistics statistics = random_statistics(cols, pool);
    const auto size = [&](int64_t c) {
      return std::sqrt(statistics.squares[static_cast<size_t>(c)] / static_cast<double>(statistics.rows));
    };
    double least = 1e300, most = 0;
    for (int64_t c = 0; c < cols; ++c) {
      least = std::min(least, size(c));
      most = std::max(most, size(c));
    }
    for (const auto& [options, group, count] :
         {std::tuple{"pruner_zero:sparsity=0.25", cols, int64_t{6}}, {"pruner_zero:pattern=1:4", 4, 3}}) {
      PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
      const auto before = matrix.values;
      ASSERT_EQ(pass_of(options)->apply(matrix, statistics, pool)->action, "pruned");
      EXPECT_EQ(matrix.values, before);
      expect_pruned(matrix, group, count);
      for (int64_t begin = 0; begin < rows * cols; begin += group) {
        double highest_pruned = 0, lowest_kept = 1e300;
        for (int64_t i = begin; i < begin + group; ++i) {
          const double w = before[static_cast<size_t>(i)], score = w * w * (size(i % cols) - least) / (most - least);
          if (matrix.kept[static_cast<size_t>(i)])
            lowest_kept = std::min(lowest_kept, score);
          else
            highest_pruned = std::max(highest_pruned, score);
        }
        EXPECT_LE(highest_pruned, lowest_kept * (1 + 1e-9)) << options << " " << begin;
      }
    }
  }
}

TEST(PrunerZero, OtherFormulasAreOtherPruners) {
  const int64_t rows = 9, cols = 24;
  ThreadPool pool(1);
  const LinearStatistics statistics = random_statistics(cols, pool);
  const auto mask = [&](const std::string& options) {
    PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
    EXPECT_TRUE(pass_of(options)->apply(matrix, statistics, pool).ok());
    return matrix.kept;
  };
  EXPECT_EQ(mask("pruner_zero:metric=W*G"), mask("wanda"));
  EXPECT_EQ(mask("pruner_zero:metric=log(W)"), mask("magnitude:scope=row"));  // negative scores
  EXPECT_NE(mask("pruner_zero"), mask("wanda"));
}

TEST(PrunerZero, PrunedWeightsStayPruned) {
  ThreadPool pool(1);
  const LinearStatistics statistics = random_statistics(24, pool);
  PassMatrix matrix = matrix_of(9, 24, "f32", 6);
  ASSERT_TRUE(pass_of("magnitude:scope=row,sparsity=0.25")->apply(matrix, statistics, pool).ok());
  const auto first = matrix.kept;
  ASSERT_TRUE(pass_of("pruner_zero:metric=log(W*G),sparsity=0.5")->apply(matrix, statistics, pool).ok());
  expect_pruned(matrix, 24, 12);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_LE(matrix.kept[i], first[i]);
}

TEST(ScoreExpression, ReadsFormulas) {
  const std::vector<float> w = {1, -2, 3, -4};
  const auto scores = [&](const char* text) {
    auto parsed = ScoreExpression::parse(text);
    EXPECT_TRUE(parsed.ok()) << text;
    return parsed->scores(w, {2, 4});
  };
  using Values = std::vector<double>;
  EXPECT_EQ(scores("W"), (Values{1, 2, 3, 4}));
  EXPECT_EQ(scores("G"), (Values{2, 4, 2, 4}));
  EXPECT_EQ(scores("W + W*G - G/G"), (Values{2, 9, 8, 19}));
  EXPECT_EQ(scores("(W+G)*sqr(W)"), (Values{3, 24, 45, 128}));
  EXPECT_EQ(scores("mms(G)"), (Values{0, 1, 0, 1}));
  EXPECT_EQ(scores("zsn(G)"), (Values{-1, 1, -1, 1}));
  EXPECT_EQ(scores("zsn(G/G)"), (Values{0, 0, 0, 0}));
  EXPECT_EQ(scores("W/(G-G)"), (Values{0, 0, 0, 0}));
  EXPECT_EQ(ScoreExpression::parse("W*W*mms(G)")->text(), "((W*W)*mms(G))");
}

TEST(ScoreExpression, RandomChangesStayFormulas) {
  std::mt19937_64 engine(7);
  ScoreExpression one = ScoreExpression::random(3, engine);
  size_t changed = 0;
  for (int i = 0; i < 2000; ++i) {
    const ScoreExpression next =
        i % 2 == 0 ? one.mutated(engine) : one.crossed(ScoreExpression::random(3, engine), engine);
    changed += next.text() != one.text();
    one = next;
    auto again = ScoreExpression::parse(one.text());
    ASSERT_TRUE(again.ok()) << one.text();
    ASSERT_EQ(again->symbols(), one.symbols());
    for (double score : one.scores({0, -1e-20f, 1e20f, 5}, {0, 3})) ASSERT_TRUE(std::isfinite(score)) << one.text();
  }
  EXPECT_GT(changed, 500U);
}

// Twice the same; another seed is another search; never worse by its own measure than where it began.
TEST(PrunerZero, TheSearchFindsNothingWorse) {
  const int64_t rows = 8, cols = 48;
  const auto searched = [&](const std::string& options, int threads) {
    ThreadPool pool(threads);
    const LinearStatistics statistics = random_statistics(cols, pool);
    PassMatrix matrix = matrix_of(rows, cols, "f32", 6);
    const auto before = matrix.values;
    auto pass = pass_of("pruner_zero:" + options);
    for (int time = 0; time < pass->surveys(); ++time) pass->survey(time, matrix, statistics, pool);
    auto row = pass->apply(matrix, statistics, pool);
    EXPECT_TRUE(row.ok());
    return std::pair(row->why, loss_of(matrix, before, hessian_of(statistics, 0)));
  };
  const auto published = searched("search=0", 1), found = searched("search=6", 1);
  EXPECT_EQ(published.first, "");
  EXPECT_TRUE(found.first.starts_with("by ")) << found.first;
  EXPECT_LE(found.second, published.second);
  EXPECT_EQ(found, searched("search=6", 3));
  const auto poor = searched("search=0,metric=G/W", 1);
  EXPECT_LT(searched("search=6,metric=G/W", 1).second, 0.8 * poor.second);
}

TEST(PrunerZero, SaysWhatIsWrong) {
  const auto failure = [](const std::string& text) {
    auto made = make_pass(text);
    EXPECT_FALSE(made.ok()) << text;
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_EQ(failure("pruner_zero:metric=W*"),
            "pass pruner_zero: metric 'W*': expected W, G, a function or ( at character 3");
  EXPECT_CONTAINS(failure("pruner_zero:metric=tanh(W)"),
                  "expected one of sqr, sqrt, log, exp, mms, zsn at character 1");
  EXPECT_CONTAINS(failure("pruner_zero:metric=(W"), "expected an operator or ) at character 3");
  EXPECT_CONTAINS(failure("pruner_zero:metric=W G"), "expected an operator at character 3");
  EXPECT_CONTAINS(failure("pruner_zero:metric=" + std::string(100, '(')), "expected fewer parentheses");
  std::string longest = "W";
  for (int i = 0; i < 40; ++i) longest += "+W";
  EXPECT_CONTAINS(failure("pruner_zero:metric=" + longest), "metric: has more than 64 symbols; give a shorter one");
}

}  // namespace
}  // namespace millrace
