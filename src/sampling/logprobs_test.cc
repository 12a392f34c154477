#include "sampling/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Logprobs, AreTheLogSoftmax) {
  std::vector<float> logits;
  for (double p : {0.1, 0.2, 0.3, 0.4}) logits.push_back(static_cast<float>(std::log(p) + 5));
  auto out = compute_logprobs(logits, 1, 2);
  EXPECT_EQ(out.chosen.token, 1);
  EXPECT_NEAR(out.chosen.logprob, std::log(0.2), 1e-6);
  ASSERT_EQ(out.top.size(), 2u);
  EXPECT_EQ(out.top[0].token, 3);
  EXPECT_NEAR(out.top[0].logprob, std::log(0.4), 1e-6);
  EXPECT_EQ(out.top[1].token, 2);
}

TEST(Logprobs, TopKEqualsAFullSortWithTies) {
  std::mt19937 engine(3);
  std::vector<float> logits(500);
  for (auto& x : logits) x = static_cast<float>(engine() % 20);
  std::vector<TokenId> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  for (int64_t k : {0, 1, 7, 100, 500, 9999}) {
    auto out = compute_logprobs(logits, 0, k);
    ASSERT_EQ(out.top.size(), static_cast<size_t>(std::min<int64_t>(k, 500)));
    for (size_t i = 0; i < out.top.size(); ++i) ASSERT_EQ(out.top[i].token, order[i]);
  }
}

TEST(Logprobs, LargeAndNonFiniteLogits) {
  std::vector<float> logits = {1e30f, std::nanf(""), -kInfinity, 1e30f};
  auto out = compute_logprobs(logits, 1, 4);
  EXPECT_EQ(out.chosen.logprob, -kInfinity);
  ASSERT_EQ(out.top.size(), 2u);
  EXPECT_NEAR(out.top[0].logprob, -std::log(2.0), 1e-6);
  EXPECT_EQ(compute_logprobs(logits, 77, 0).chosen.logprob, -kInfinity);
  EXPECT_EQ(compute_logprobs(logits, -1, -1).chosen.logprob, -kInfinity);
  std::vector<float> nothing(3, -kInfinity);
  EXPECT_EQ(compute_logprobs(nothing, 0, 3).chosen.logprob, -kInfinity);
  EXPECT_TRUE(compute_logprobs(nothing, 0, 3).top.empty());
}

TEST(Logprobs, FirstAndLastTokenWithoutReadingPastThem) {
  const std::vector<float> memory = {9, 0, 1, 2, 9};  // a row between others
  const auto logits = std::span(memory).subspan(1, 3);
  const double sum = std::log(1 + std::exp(1.0) + std::exp(2.0));
  EXPECT_NEAR(log_sum_exp(logits), sum, 1e-12);
  for (TokenId token : {0, 1, 2}) EXPECT_NEAR(compute_logprobs(logits, token, 0).chosen.logprob, token - sum, 1e-6);
  for (TokenId token : {-1, 3, 4}) EXPECT_EQ(compute_logprobs(logits, token, 0).chosen.logprob, -kInfinity) << token;
}

TEST(Logprobs, EmptyRowDoesNotReadItsNeighbours) {
  for (float beside : {std::nanf(""), kInfinity, 3.0f}) {
    const std::vector<float> memory = {beside, -kInfinity, -kInfinity, beside};
    EXPECT_EQ(log_sum_exp(std::span(memory).subspan(1, 2)), -kInfinity);
  }
}

}  // namespace
}  // namespace millrace
