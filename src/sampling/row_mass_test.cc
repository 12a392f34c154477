// Large rows, whose sums are estimated: the nucleus, the drawn token and the log-probabilities are those of sums in
// doubles, in candidate order, bit for bit; where an estimate cannot decide, nothing is decided.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>

#include "sampling/chain.h"
#include "sampling/estimate.h"
#include "sampling/logprobs.h"
#include "sampling/order.h"

namespace millrace {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// ---- the definitions --------------------------------------------------------------------------

std::vector<Candidate> candidates_of(const std::vector<float>& logits) {
  std::vector<Candidate> out;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > kNever) out.push_back({std::min(logits[i], FLT_MAX), static_cast<TokenId>(i)});
  return out;
}

double largest_of(const std::vector<Candidate>& list) {
  float max = kNever;
  for (const Candidate& candidate : list) max = std::max(max, candidate.logit);
  return max;
}

std::vector<Candidate> nucleus_of(std::vector<Candidate> list, double p) {
  const double max = largest_of(list);
  double total = 0, mass = 0;
  for (const Candidate& candidate : list) total += std::exp(candidate.logit - max);
  std::sort(list.begin(), list.end(), better);
  size_t kept = 0;
  while (kept < list.size()) {
    mass += std::exp(list[kept++].logit - max) / total;
    if (!(mass < p)) break;
  }
  list.resize(kept);
  return list;
}

TokenId drawn_from(const std::vector<Candidate>& list, double uniform) {
  const double max = largest_of(list);
  double total = 0, sum = 0;
  for (const Candidate& candidate : list) total += std::exp(candidate.logit - max);
  TokenId last = -1;
  for (const Candidate& candidate : list) {
    const double weight = std::exp(candidate.logit - max);
    if (weight > 0) last = candidate.token;
    sum += weight;
    if (sum > uniform * total) return candidate.token;
  }
  return last;
}

// ---- rows -------------------------------------------------------------------------------------

std::vector<float> normal_row(size_t n, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> out(n);
  for (float& logit : out) logit = normal(random);
  return out;
}

// Few different values, zeros of both signs among them.
std::vector<float> coarse_row(size_t n, uint32_t seed) {
  std::vector<float> out = normal_row(n, 2, seed);
  for (float& logit : out) logit = std::round(logit) / 2;
  return out;
}

std::vector<float> odd_row(size_t n, uint32_t seed) {
  std::vector<float> out = normal_row(n, 3, seed);
  for (size_t i = 0; i < n; i += 7) out[i] = kNever;
  for (size_t i = 3; i < n; i += 11) out[i] = std::numeric_limits<float>::quiet_NaN();
  out[n / 2] = 40;
  return out;
}

std::vector<std::vector<float>> many_rows() {
  std::vector<std::vector<float>> rows;
  uint32_t seed = 1;
  for (const size_t n : {kEstimateFrom - 1, kEstimateFrom, size_t{2049}, size_t{5000}, size_t{32000}, size_t{128256}}) {
    for (const float deviation : {0.0f, 0.01f, 1.0f, 3.0f, 30.0f}) rows.push_back(normal_row(n, deviation, seed++));
    rows.push_back(coarse_row(n, seed++));
    rows.push_back(odd_row(n, seed++));
    rows.push_back(std::vector<float>(n, kNever));
    rows.back()[n - 1] = -3;
    rows.push_back(normal_row(n, 1, seed++));
    rows.back()[5] = std::numeric_limits<float>::infinity();
  }
  return rows;
}

void expect_same(const std::vector<Candidate>& actual, const std::vector<Candidate>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].token, expected[i].token) << i;
    ASSERT_EQ(actual[i].logit, expected[i].logit) << i;
  }
}

// label(once): statistics over many rows
TEST(RowMass, NucleusIsThatOfSumsInOrder) {
  SamplingRow row;
  int decided = 0, undecided = 0;
  for (auto logits : many_rows()) {
    const auto all = candidates_of(logits);
    for (const double p : {0.0, 1e-9, 0.25, 0.5, 0.9, 0.999, 1 - 1e-13}) {
      SCOPED_TRACE(std::to_string(logits.size()) + " logits, the last " + std::to_string(logits.back()) + ", p " +
                   std::to_string(p));
      row.begin(logits, 0, 0);
      if (row.keep_nucleus(p)) {
        ++decided;
        EXPECT_EQ(row.sorted(), row.candidates().size());
        expect_same(row.candidates(), nucleus_of(all, p));
      } else {
        undecided += logits.size() >= kEstimateFrom;
        EXPECT_TRUE(row.dense());
        expect_same(row.candidates(), all);
      }
    }
  }
  EXPECT_GT(decided, 200);
  EXPECT_GT(undecided, 3);
}

// Half of 4096 equal weights is exactly the mass of 2048, and rounding decides whether one more is kept.
TEST(RowMass, NucleusThatRoundingDecidesIsNotEstimated) {
  std::vector<float> logits(4096, 1.0f);
  SamplingRow row;
  row.begin(logits, 0, 0);
  EXPECT_FALSE(row.keep_nucleus(0.5));
  row.begin(logits, 0, 0);
  EXPECT_TRUE(row.keep_nucleus(0.5 + 1e-6));
  EXPECT_EQ(row.candidates().size(), 2049u);
}

TEST(RowMass, NucleusOfAListIsLeftToTheCaller) {
  std::vector<float> logits = normal_row(4096, 1, 1);
  SamplingRow row;
  row.begin(logits, 0, 0);
  row.candidates();
  EXPECT_FALSE(row.keep_nucleus(0.5));
  EXPECT_EQ(row.candidates().size(), 4096u);
}

TEST(RowMass, DrawIsThatOfSumsInOrder) {
  SamplingRow row;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> share;
  int decided = 0;
  for (auto logits : many_rows()) {
    const auto all = candidates_of(logits);
    for (const bool dense : {true, false}) {
      SCOPED_TRACE(std::to_string(logits.size()) + " logits, the last " + std::to_string(logits.back()));
      row.begin(logits, 0, 0);
      if (!dense) row.candidates();
      for (int i = 0; i < 20; ++i) {
        const double uniform = i == 0 ? 0 : share(random);
        const TokenId token = row.draw_estimated(uniform);
        if (token < 0) continue;
        ++decided;
        EXPECT_EQ(token, drawn_from(all, uniform));
      }
    }
  }
  EXPECT_GT(decided, 1000);
}

// Where the running sum is an exact share of the total, the last bit decides.
TEST(RowMass, DrawThatRoundingDecidesIsNotEstimated) {
  std::vector<float> logits(4096, 1.0f);
  SamplingRow row;
  row.begin(logits, 0, 0);
  EXPECT_EQ(row.draw_estimated(1024.0 / 4096), -1);
  EXPECT_EQ(row.draw_estimated(1024.5 / 4096), 1024);
  EXPECT_EQ(row.draw_estimated(0.5 / 4096), 0);
  EXPECT_EQ(row.draw_estimated(4095.5 / 4096), 4095);
  EXPECT_EQ(row.draw_estimated(1 - 0x1p-53), -1);
}

TEST(RowMass, RowsWithoutACandidateAreNotEstimated) {
  std::vector<float> logits(4096, kNever);
  SamplingRow row;
  row.begin(logits, 0, 0);
  EXPECT_EQ(row.draw_estimated(0.5), -1);
  EXPECT_FALSE(row.keep_nucleus(0.5));
  EXPECT_TRUE(row.candidates().empty());
}

// Whole chains: each token as the definitions have it, one after the other.
TEST(RowMass, ChainsOfLargeRowsFollowTheDefinitions) {
  SamplerSetup setup;
  setup.vocab_size = 20000;
  setup.options.seed = 7;
  setup.options.top_k = 0;
  setup.options.min_p = 0;
  setup.options.temperature = 0.8;
  for (const double p : {0.9, 1.0}) {
    setup.options.top_p = p;
    auto chain = SamplerChain::create(setup).value();
    SamplingRow row;
    for (int64_t position = 0; position < 40; ++position) {
      auto logits = normal_row(20000, 2, static_cast<uint32_t>(position + 100));
      auto list = candidates_of(logits);
      if (p < 1) list = nucleus_of(list, p);
      const double max = largest_of(list);
      for (Candidate& candidate : list) candidate.logit = static_cast<float>((candidate.logit - max) / 0.8);
      const double uniform = philox_uniform(7, static_cast<uint64_t>(RandomStream::token), position);
      const auto token = chain.sample(logits, position, row);
      ASSERT_TRUE(token.ok());
      EXPECT_EQ(*token, drawn_from(list, uniform)) << position << ", p " << p;
    }
  }
}

TEST(RowMass, DenseRowsScaleAsLists) {
  for (auto logits : {normal_row(3000, 3, 1), odd_row(3000, 2)}) {
    auto copy = logits;
    SamplingRow dense, list;
    dense.begin(logits, 0, 0);
    dense.scale(0.7);
    EXPECT_TRUE(dense.dense());
    list.begin(copy, 0, 0);
    list.candidates();
    list.scale(0.7);
    expect_same(dense.candidates(), list.candidates());
  }
}

// ---- log-probabilities ------------------------------------------------------------------------

TEST(RowMass, LogprobsAreThoseOfSumsInOrder) {
  for (auto logits : many_rows()) {
    SCOPED_TRACE(std::to_string(logits.size()) + " logits, the last " + std::to_string(logits.back()));
    auto all = candidates_of(logits);
    double sum = 0;
    const double max = largest_of(all);
    for (const Candidate& candidate : all) sum += std::exp(candidate.logit - max);
    const double log_sum = std::log(sum);
    std::sort(all.begin(), all.end(), better);
    const Candidate chosen = all[all.size() / 2];
    const Logprobs actual = compute_logprobs(logits, chosen.token, 30);
    EXPECT_EQ(actual.chosen.logprob, static_cast<float>(chosen.logit - max - log_sum));
    ASSERT_EQ(actual.top.size(), std::min<size_t>(30, all.size()));
    for (size_t i = 0; i < actual.top.size(); ++i) {
      EXPECT_EQ(actual.top[i].token, all[i].token);
      EXPECT_EQ(actual.top[i].logprob, static_cast<float>(all[i].logit - max - log_sum));
    }
  }
}

// ---- sorting ----------------------------------------------------------------------------------

TEST(RadixSort, SortsAsComparisonsDo) {
  std::mt19937 random(1);
  for (const auto& logits : {normal_row(1, 1, 1), normal_row(5000, 3, 2), coarse_row(5000, 3), odd_row(3000, 4),
                             std::vector<float>(1000, -0.0f), std::vector<float>()}) {
    auto list = candidates_of(logits), spare = list;
    for (const bool shuffled : {false, true}) {
      if (shuffled) std::shuffle(list.begin(), list.end(), random);
      auto expected = list;
      std::sort(expected.begin(), expected.end(), better);
      radix_sort(list, spare);
      expect_same(list, expected);
    }
  }
}

}  // namespace
}  // namespace millrace
