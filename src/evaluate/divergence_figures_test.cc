// Divergence: hand-computed sums over small distributions, and statistics of a list of tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "evaluate/divergence.h"

namespace millrace {
namespace {

TEST(DivergenceFigures, LogSoftmaxByHand) {
  const float inf = std::numeric_limits<float>::infinity();
  const float logits[] = {1, 2, 0, -inf, 7};
  float out[] = {9, 9, 9, 9, 9};
  log_softmax(logits, 4, out);
  const double total = std::log(std::exp(1.0) + std::exp(2.0) + 1);
  EXPECT_NEAR(out[0], 1 - total, 1e-6);
  EXPECT_NEAR(out[1], 2 - total, 1e-6);
  EXPECT_NEAR(out[2], -total, 1e-6);
  EXPECT_EQ(out[3], -inf);
  EXPECT_EQ(out[4], 9);  // not in the vocabulary
  const float alone[] = {5};
  log_softmax(alone, 1, out);
  EXPECT_EQ(out[0], 0);
}

TEST(DivergenceFigures, OneRow) {
  const float reference[] = {std::log(0.5f), std::log(0.5f), -std::numeric_limits<float>::infinity(), 0};
  const float other[] = {std::log(0.125f), std::log(0.625f), std::log(0.25f), 0};
  const TokenDivergence d = compare_rows(reference, other, 3, 1);
  EXPECT_NEAR(d.kl, 0.5 * std::log(0.5 / 0.125) + 0.5 * std::log(0.5 / 0.625), 1e-6);
  EXPECT_NEAR(d.reference_nll, std::log(2.0), 1e-6);
  EXPECT_NEAR(d.probability_change, 0.125, 1e-6);
  EXPECT_FALSE(d.same_top);  // the first and the second of two equals
  EXPECT_TRUE(compare_rows(other, other, 3, 0).same_top);
  EXPECT_NEAR(compare_rows(other, other, 3, 0).kl, 0, 1e-7);
}

// KL 1 to 5, in no order: mean 3, squares 10 around it.
TEST(DivergenceFigures, FiveTokens) {
  std::vector<TokenDivergence> tokens;
  for (double kl : {4.0, 1.0, 5.0, 2.0, 3.0}) tokens.push_back({kl, 2 * kl, kl / 10, kl > 3});
  const DivergenceSummary s = summarize(tokens);
  EXPECT_NEAR(s.kl_mean, 3, 1e-12);
  EXPECT_NEAR(s.kl_mean_stderr, std::sqrt(10.0 / 5 / 4), 1e-12);
  EXPECT_NEAR(s.kl_median, 3, 1e-12);
  EXPECT_NEAR(s.kl_p90, 4.6, 1e-12);
  EXPECT_NEAR(s.kl_p99, 4.96, 1e-12);
  EXPECT_EQ(s.kl_max, 5);
  EXPECT_NEAR(s.same_top, 0.4, 1e-12);
  EXPECT_NEAR(s.reference_nll_mean, 6, 1e-12);
  EXPECT_NEAR(s.probability_change_rms, std::sqrt(0.55 / 5), 1e-12);
}

TEST(DivergenceFigures, OneTokenAndNone) {
  const DivergenceSummary one = summarize({{2, 3, 0.5, true}});
  EXPECT_EQ(one.kl_mean, 2);
  EXPECT_EQ(one.kl_mean_stderr, 0);
  EXPECT_EQ(one.kl_median, 2);
  EXPECT_EQ(one.kl_p99, 2);
  EXPECT_EQ(one.kl_max, 2);
  EXPECT_EQ(one.same_top, 1);
  EXPECT_EQ(one.probability_change_rms, 0.5);
  const DivergenceSummary two = summarize({{1, 0, 0, false}, {3, 0, 0, false}});
  EXPECT_NEAR(two.kl_mean_stderr, 1, 1e-12);
  EXPECT_NEAR(two.kl_median, 2, 1e-12);
  const DivergenceSummary none = summarize({});
  EXPECT_EQ(none.kl_mean, 0);
  EXPECT_EQ(none.same_top, 0);
}

}  // namespace
}  // namespace millrace
