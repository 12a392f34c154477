// The draw at a chain's end against its definition: the first candidate whose cumulative probability exceeds the random
// number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sampling/chain.h"

namespace millrace {
namespace {

TokenId plain_draw(const std::vector<float>& logits, double random) {
  double largest = logits[0], total = 0, cumulated = 0;
  for (float logit : logits) largest = std::max<double>(largest, logit);
  for (float logit : logits) total += std::exp(logit - largest);
  for (size_t i = 0; i < logits.size(); ++i) {
    cumulated += std::exp(logits[i] - largest);
    if (cumulated > random * total) return static_cast<TokenId>(i);
  }
  return -1;
}

TEST(Draw, TakesTheFirstWhoseCumulatedProbabilityExceedsTheRandomNumber) {
  const std::vector<float> rows[] = {{0, 0},          {1, 0.5f}, {-1, 2}, {7}, {0, 0, 0}, {-2000, 1, 1, -2000},
                                     {3, 1, 2, 0, -1}};
  SamplingRow row;
  for (const auto& logits : rows) {
    std::vector<size_t> drawn(logits.size());
    for (int64_t position = 0; position < 200; ++position) {
      std::vector<float> copy = logits;
      row.begin(copy, 77, position);
      const TokenId token = *draw(row);
      ASSERT_EQ(token, plain_draw(logits, philox_uniform(77, 0, static_cast<uint64_t>(position)))) << position;
      ++drawn[static_cast<size_t>(token)];
    }
    for (size_t i = 0; i < logits.size(); ++i) EXPECT_EQ(drawn[i] > 0, logits[i] > -1000) << i;
  }
}

TEST(Draw, RandomNumbersNearOneDrawTheLastTokenWithNonzeroProbability) {
  // The position with the largest random number among many.
  SamplingRow row;
  double most = 0;
  int64_t at = 0;
  for (int64_t position = 0; position < 20'000; ++position) {
    const double random = philox_uniform(5, 0, static_cast<uint64_t>(position));
    if (random > most) most = random, at = position;
  }
  ASSERT_GT(most, 0.9999);
  std::vector<float> logits = {0, 0, 0, -5000};
  row.begin(logits, 5, at);
  EXPECT_EQ(*draw(row), 2);
}

// Logits whose weights sum to 1 / random: the first token, of weight 1, then ends exactly at the random number.
std::vector<float> ending_at(double random) {
  std::vector<float> logits = {0};
  double total = 1;
  while (total < 1 / random && logits.size() < 8) {
    auto logit = static_cast<float>(std::log(1 / random - total));
    while (total + std::exp(static_cast<double>(logit)) > 1 / random) logit = std::nextafter(logit, -1e30f);
    logits.push_back(logit);
    total += std::exp(static_cast<double>(logit));
  }
  return random * total == 1 ? logits : std::vector<float>{};
}

TEST(Draw, NumberAtATokensUpperEdgeDrawsTheNextToken) {
  SamplingRow row;
  int found = 0;
  for (int64_t position = 0; position < 200; ++position) {
    const double random = philox_uniform(3, 0, static_cast<uint64_t>(position));
    std::vector<float> logits = random > 0.5 ? ending_at(random) : std::vector<float>{};
    if (logits.empty()) continue;
    ++found;
    row.begin(logits, 3, position);
    EXPECT_EQ(*draw(row), 1) << position;
  }
  EXPECT_GT(found, 10);
}

TEST(Draw, CloneDrawsWithTheSameSeed) {
  SamplerSetup setup;
  setup.vocab_size = 50;
  setup.options.seed = 42;
  setup.options.temperature = 1;
  auto chain = SamplerChain::create(setup).value();
  auto clone = chain.clone();
  SamplingRow row;
  for (int64_t position = 0; position < 40; ++position) {
    std::vector<float> one(50, 1.0f), other = one;
    EXPECT_EQ(*clone.sample(one, position, row), *chain.sample(other, position, row)) << position;
  }
}

}  // namespace
}  // namespace millrace
