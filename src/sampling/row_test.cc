#include "sampling/row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace millrace {
namespace {

constexpr float kRowInf = std::numeric_limits<float>::infinity();
constexpr float kRowNan = std::numeric_limits<float>::quiet_NaN();

std::vector<TokenId> row_tokens(SamplingRow& row) {
  std::vector<TokenId> out;
  for (const auto& candidate : row.candidates()) out.push_back(candidate.token);
  return out;
}

// Logits with many ties, some NaN and -inf.
std::vector<float> rough_logits(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> out(n);
  for (auto& x : out) {
    uint32_t r = engine() % 100;
    x = r == 0 ? kRowNan : r == 1 ? -kRowInf : static_cast<float>(engine() % 50);
  }
  return out;
}

std::vector<Candidate> sorted_reference(const std::vector<float>& logits) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -kRowInf) all.push_back({logits[i], static_cast<TokenId>(i)});
  }
  std::sort(all.begin(), all.end(), better);
  return all;
}

TEST(Argmax, TakesTheFirstOfEqualsAndIgnoresNan) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(argmax(std::vector<float>{kRowNan, -5, kRowNan, -7}), 1);
  EXPECT_EQ(argmax(std::vector<float>{0, kRowInf, kRowInf}), 1);
  EXPECT_EQ(argmax(std::vector<float>{kRowNan, -kRowInf}), -1);
  EXPECT_EQ(argmax({}), -1);
  for (size_t n : {1, 7, 8, 9, 1023, 1024, 1025, 5000}) {
    auto logits = rough_logits(n, static_cast<uint32_t>(n));
    auto expected = sorted_reference(logits);
    EXPECT_EQ(argmax(logits), expected.empty() ? -1 : expected[0].token) << n;
  }
}

TEST(LargestTokens, AreTheFirstOfAFullSort) {
  for (size_t n : {0, 1, 7, 255, 256, 257, 3000}) {
    for (size_t k : {0, 1, 4, 8, 300}) {
      auto logits = rough_logits(n, static_cast<uint32_t>(n + k));
      auto expected = sorted_reference(logits);
      std::vector<TokenId> largest(k, 5);
      largest_tokens(logits, largest);
      for (size_t i = 0; i < k; ++i)
        EXPECT_EQ(largest[i], i < expected.size() ? expected[i].token : -1) << n << " " << i;
    }
  }
}

TEST(SamplingRow, KeepBestEqualsAFullSort) {
  SamplingRow row;
  for (size_t n : {1, 5, 100, 3000}) {
    for (size_t k : {1, 2, 3, 40, 99, 100, 5000}) {
      auto logits = rough_logits(n, static_cast<uint32_t>(n + k));
      auto expected = sorted_reference(logits);
      if (expected.size() > k) expected.resize(k);
      std::vector<TokenId> ids;
      for (const auto& candidate : expected) ids.push_back(candidate.token);
      row.begin(logits, 0, 0);
      row.keep_best(k);
      EXPECT_EQ(row_tokens(row), ids) << n << " choose " << k;
      row.begin(logits, 0, 0);
      row.candidates();  // the same from a list
      row.keep_best(k);
      EXPECT_EQ(row_tokens(row), ids) << n << " choose " << k << " from a list";
    }
  }
}

TEST(SamplingRow, KeepAbovePreservesTheSortedPrefix) {
  std::vector<float> logits = {1, 5, 3, 4, 2};
  SamplingRow row;
  row.begin(logits, 0, 0);
  row.candidates();
  row.sort_prefix(2);
  row.keep_above(3);
  EXPECT_EQ(row.sorted(), 2u);
  EXPECT_EQ(row_tokens(row), (std::vector<TokenId>{1, 3, 2}));
  row.keep_above(4.5);
  EXPECT_EQ(row.sorted(), 1u);
}

TEST(SamplingRow, VisitSortedVisitsAllInOrder) {
  auto logits = rough_logits(1000, 4);
  auto expected = sorted_reference(logits);
  SamplingRow row;
  row.begin(logits, 0, 0);
  size_t seen = 0;
  row.visit_sorted([&](size_t i) {
    EXPECT_EQ(row.candidates()[i].token, expected[i].token);
    ++seen;
    return true;
  });
  EXPECT_EQ(seen, expected.size());
}

TEST(SamplingRow, SoftmaxSumsToOneAndSurvivesInfinity) {
  std::vector<float> logits = {1e30f, kRowInf, kRowNan, kRowInf, -kRowInf};
  SamplingRow row;
  row.begin(logits, 0, 0);
  Softmax softmax = row.softmax();
  double sum = 0;
  for (const auto& candidate : row.candidates()) sum += softmax.probability(candidate.logit);
  EXPECT_NEAR(sum, 1.0, 1e-12);
  EXPECT_EQ(row_tokens(row), (std::vector<TokenId>{0, 1, 3}));
}

}  // namespace
}  // namespace millrace
