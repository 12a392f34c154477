// Each step alone on hand-computed cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "sampling/chain.h"

namespace millrace {
namespace {

constexpr float kStepInf = std::numeric_limits<float>::infinity();

// Options with every step off; temperature 1 draws from the model's own distribution.
SamplerSetup neutral(int32_t vocab_size) {
  SamplerSetup setup;
  setup.vocab_size = vocab_size;
  setup.options.top_k = 0;
  setup.options.top_p = 1;
  setup.options.min_p = 0;
  setup.options.temperature = 1;
  return setup;
}

struct Applied {
  std::vector<float> logits;  // after the steps
  std::set<TokenId> tokens;   // left as candidates
};

Applied run_steps(const SamplerSetup& setup, std::vector<float> logits, const std::vector<TokenId>& history = {},
                  int64_t position = 0) {
  auto chain = SamplerChain::create(setup);
  EXPECT_TRUE(chain.ok());
  for (TokenId token : history) chain->accept(token);
  SamplingRow row;
  Applied out{std::move(logits), {}};
  chain->apply(out.logits, position, row);
  for (const auto& candidate : row.candidates()) out.tokens.insert(candidate.token);
  return out;
}

std::vector<float> logs_of(std::vector<double> probabilities) {
  std::vector<float> out;
  for (double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

using Tokens = std::set<TokenId>;

TEST(Penalties, FollowTheFormulas) {
  auto setup = neutral(4);
  setup.options.repetition_penalty = 2;
  setup.options.frequency_penalty = 0.5;
  setup.options.presence_penalty = 0.25;
  auto out = run_steps(setup, {3, -3, 3, 3}, {0, 0, 1});
  EXPECT_EQ(out.logits, (std::vector<float>{1.5f - 1.0f - 0.25f, -6.0f - 0.5f - 0.25f, 3, 3}));
}

TEST(Penalties, IgnoreTokensOutsideTheWindow) {
  auto setup = neutral(4);
  setup.options.presence_penalty = 1;
  setup.options.penalty_window = 2;
  EXPECT_EQ(run_steps(setup, {0, 0, 0, 0}, {0, 1, 2, 2}).logits, (std::vector<float>{0, 0, -1, 0}));
  setup.options.penalty_window = -1;
  EXPECT_EQ(run_steps(setup, {0, 0, 0, 0}, {0, 1, 2, 2}).logits, (std::vector<float>{-1, -1, -1, 0}));
  setup.options.penalty_window = 0;
  EXPECT_EQ(run_steps(setup, {0, 0, 0, 0}, {0, 1, 2, 2}).logits, (std::vector<float>{0, 0, 0, 0}));
}

TEST(Penalties, IgnoreTokensOutsideTheVocabulary) {
  auto setup = neutral(2);
  setup.options.presence_penalty = 1;
  EXPECT_EQ(run_steps(setup, {0, 0}, {-1, 7, 1}).logits, (std::vector<float>{0, -1}));
}

TEST(Dry, PenalisesTheContinuationOfARepeat) {
  auto setup = neutral(6);
  setup.options.dry_multiplier = 1;
  setup.options.dry_base = 2;
  // 1 2 3 4 ... 1 2 3 | 4 would repeat a sequence of three: 2^(3 - 2).
  EXPECT_EQ(run_steps(setup, std::vector<float>(6, 0), {1, 2, 3, 4, 0, 1, 2, 3}).logits,
            (std::vector<float>{0, 0, 0, 0, -2, 0}));
  // Too short to count.
  EXPECT_EQ(run_steps(setup, std::vector<float>(6, 0), {3, 4, 0, 1, 2, 3}).logits, std::vector<float>(6, 0));
}

TEST(Dry, TakesTheLongestOfSeveralMatches) {
  auto setup = neutral(6);
  setup.options.dry_multiplier = 1;
  setup.options.dry_base = 2;
  setup.options.dry_allowed_length = 1;
  // Before "5": suffix lengths 1 (from "3 5") and 2 (from "2 3 5"); before "4": 1.
  auto out = run_steps(setup, std::vector<float>(6, 0), {3, 5, 2, 3, 5, 3, 4, 2, 3});
  EXPECT_EQ(out.logits, (std::vector<float>{0, 0, 0, 0, -1, -2}));
}

TEST(Dry, OverlappingRepeatsCountInFull) {
  auto setup = neutral(3);
  setup.options.dry_multiplier = 1;
  setup.options.dry_base = 2;
  // 1 1 1 1: the suffix 1 1 1 occurred before the last 1.
  EXPECT_EQ(run_steps(setup, {0, 0, 0}, {1, 1, 1, 1}).logits, (std::vector<float>{0, -2, 0}));
}

TEST(Dry, BreakersEndASequenceAndAreNotPenalised) {
  auto setup = neutral(6);
  setup.options.dry_multiplier = 1;
  setup.options.dry_base = 2;
  setup.dry_breakers = {{2}};
  // Only "3" follows the breaker: shorter than allowed_length.
  EXPECT_EQ(run_steps(setup, std::vector<float>(6, 0), {1, 2, 3, 4, 0, 1, 2, 3}).logits, std::vector<float>(6, 0));
  // The continuation is itself a breaker.
  EXPECT_EQ(run_steps(setup, std::vector<float>(6, 0), {1, 3, 4, 2, 0, 1, 3, 4}).logits, std::vector<float>(6, 0));
  // A breaker of two tokens.
  setup.dry_breakers = {{1, 2}};
  EXPECT_EQ(run_steps(setup, std::vector<float>(6, 0), {1, 2, 3, 4, 0, 1, 2, 3}).logits, std::vector<float>(6, 0));
  setup.dry_breakers = {{2, 1}};
  EXPECT_EQ(run_steps(setup, std::vector<float>(6, 0), {1, 2, 3, 4, 0, 1, 2, 3}).logits[4], -2);
}

TEST(Dry, LooksBackNoFurtherThanItsWindow) {
  auto setup = neutral(6);
  setup.options.dry_multiplier = 1;
  setup.options.dry_base = 2;
  setup.options.dry_window = 6;
  EXPECT_EQ(run_steps(setup, std::vector<float>(6, 0), {1, 2, 3, 4, 0, 1, 2, 3}).logits, std::vector<float>(6, 0));
  setup.options.dry_window = 7;  // the earlier "1" is out: length 2
  EXPECT_EQ(run_steps(setup, std::vector<float>(6, 0), {1, 2, 3, 4, 0, 1, 2, 3}).logits[4], -1);
}

TEST(Dry, LongRepeatsStayFinite) {
  auto setup = neutral(2);
  setup.options.dry_multiplier = 5;
  auto out = run_steps(setup, {0, 0}, std::vector<TokenId>(5000, 1));
  EXPECT_TRUE(std::isfinite(out.logits[1]));
  EXPECT_LT(out.logits[1], -1e29f);
}

// Against the definition, spelled out over every earlier end.
TEST(Dry, EqualsBruteForceOnRandomHistories) {
  std::mt19937 engine(23);
  for (int round = 0; round < 2000; ++round) {
    auto setup = neutral(4);
    auto& o = setup.options;
    o.dry_multiplier = 1;
    o.dry_base = 1.5;
    o.dry_allowed_length = 1 + static_cast<int64_t>(engine() % 3);
    o.dry_window = engine() % 2 ? -1 : static_cast<int64_t>(engine() % 20);
    if (engine() % 2) setup.dry_breakers = {{3}};
    std::vector<TokenId> history(engine() % 40);
    for (auto& token : history) token = static_cast<TokenId>(engine() % (engine() % 4 + 1));
    std::vector<TokenId> window = history;
    if (o.dry_window >= 0 && static_cast<int64_t>(window.size()) > o.dry_window) {
      window.erase(window.begin(), window.end() - o.dry_window);
    }
    bool breaks = !setup.dry_breakers.empty();
    std::vector<int64_t> longest(4, 0);
    for (size_t next = 1; next < window.size(); ++next) {  // window[next] follows the end of an earlier occurrence
      size_t length = 0;
      while (length < next && window[next - 1 - length] == window[window.size() - 1 - length] &&
             !(breaks && window[next - 1 - length] == 3)) {
        ++length;
      }
      auto& best = longest[static_cast<size_t>(window[next])];
      best = std::max(best, static_cast<int64_t>(length));
    }
    std::vector<float> expected(4, 0);
    for (size_t token = 0; token < 4; ++token) {
      if (longest[token] < o.dry_allowed_length || (breaks && token == 3)) continue;
      expected[token] = static_cast<float>(-std::pow(1.5, static_cast<double>(longest[token] - o.dry_allowed_length)));
    }
    ASSERT_EQ(run_steps(setup, {0, 0, 0, 0}, history).logits, expected) << "round " << round;
  }
}

TEST(Lists, BiasBanAndAllow) {
  auto setup = neutral(4);
  setup.options.logit_bias = {{1, 2.5}, {2, -std::numeric_limits<double>::infinity()}};
  auto out = run_steps(setup, {1, 1, 1, 1});
  EXPECT_EQ(out.logits, (std::vector<float>{1, 3.5f, -kStepInf, 1}));
  EXPECT_EQ(out.tokens, (Tokens{0, 1, 3}));
  setup.options.banned_tokens = {0};
  EXPECT_EQ(run_steps(setup, {1, 1, 1, 1}).tokens, (Tokens{1, 3}));
  setup.options.allowed_tokens = {3, 0, 3};
  EXPECT_EQ(run_steps(setup, {1, 1, 1, 1}).tokens, (Tokens{3}));
}

TEST(BadWords, AreNotCompleted) {
  auto setup = neutral(5);
  setup.bad_words = {{3}, {1, 2}, {4, 1, 0}};
  EXPECT_EQ(run_steps(setup, {1, 1, 1, 1, 1}).tokens, (Tokens{0, 1, 2, 4}));
  EXPECT_EQ(run_steps(setup, {1, 1, 1, 1, 1}, {2, 1}).tokens, (Tokens{0, 1, 4}));
  EXPECT_EQ(run_steps(setup, {1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 4, 1}).tokens, (Tokens{1, 4}));
  EXPECT_EQ(run_steps(setup, {1, 1, 1, 1, 1}, {1, 4}).tokens, (Tokens{0, 1, 2, 4}));
}

TEST(EndOfGeneration, IsBannedUntilMinTokens) {
  auto setup = neutral(3);
  setup.end_of_generation = {2, 1};
  setup.min_tokens = 5;
  EXPECT_EQ(run_steps(setup, {0, 0, 0}, {}, 4).tokens, (Tokens{0}));
  EXPECT_EQ(run_steps(setup, {0, 0, 0}, {}, 5).tokens, (Tokens{0, 1, 2}));
  setup.ignore_eos = true;
  EXPECT_EQ(run_steps(setup, {0, 0, 0}, {}, 1000).tokens, (Tokens{0}));
}

TEST(Greedy, IgnoresTruncationButNotPenalties) {
  auto setup = neutral(3);
  setup.options.temperature = 0;
  setup.options.xtc_probability = 1;
  setup.options.xtc_threshold = 0.01;
  setup.options.typical_p = 0.1;
  EXPECT_EQ(run_steps(setup, {1, 2, 1.9f}).tokens, (Tokens{1}));
  setup.options.presence_penalty = 1;
  EXPECT_EQ(run_steps(setup, {1, 2, 1.9f}, {1}).tokens, (Tokens{2}));
}

TEST(TopK, KeepsTheBestAndBreaksTiesByLowerId) {
  auto setup = neutral(5);
  setup.options.top_k = 2;
  EXPECT_EQ(run_steps(setup, {1, 5, 3, 3, 3}).tokens, (Tokens{1, 2}));
}

TEST(TopP, KeepsTheSmallestSetThatReachesTheMass) {
  auto setup = neutral(4);
  auto logits = logs_of({0.1, 0.5, 0.3, 0.1});
  setup.options.top_p = 0.75;
  EXPECT_EQ(run_steps(setup, logits).tokens, (Tokens{1, 2}));
  setup.options.top_p = 0.85;
  EXPECT_EQ(run_steps(setup, logits).tokens, (Tokens{0, 1, 2}));
  setup.options.top_p = 0;
  EXPECT_EQ(run_steps(setup, logits).tokens, (Tokens{1}));
}

TEST(MinP, ComparesWithTheBest) {
  auto setup = neutral(4);
  setup.options.min_p = 0.25;
  EXPECT_EQ(run_steps(setup, logs_of({0.5, 0.13, 0.12, 0.25})).tokens, (Tokens{0, 1, 3}));
  setup.options.min_p = 1;
  EXPECT_EQ(run_steps(setup, logs_of({0.5, 0.13, 0.12, 0.25})).tokens, (Tokens{0}));
}

TEST(TopNSigma, ThresholdIsInStandardDeviations) {
  auto setup = neutral(4);
  setup.options.top_n_sigma = 1;  // mean 5, deviation sqrt(13): threshold 10 - 3.6
  EXPECT_EQ(run_steps(setup, {10, 6, 4, 0}).tokens, (Tokens{0}));
  setup.options.top_n_sigma = 1.2;
  EXPECT_EQ(run_steps(setup, {10, 6, 4, 0}).tokens, (Tokens{0, 1}));
}

TEST(TypicalP, PrefersTheTypicalOverTheLikely) {
  auto setup = neutral(4);
  // Entropy 1.168 nats; surprises 0.511, 1.609, 2.303, 2.303: distances 0.66, 0.44, 1.13, 1.13. Token 1 comes first.
  auto logits = logs_of({0.6, 0.2, 0.1, 0.1});
  setup.options.typical_p = 0.1;
  EXPECT_EQ(run_steps(setup, logits).tokens, (Tokens{1}));
  setup.options.typical_p = 0.5;
  EXPECT_EQ(run_steps(setup, logits).tokens, (Tokens{0, 1}));
  setup.options.typical_p = 0.85;  // the tie goes to the lower id
  EXPECT_EQ(run_steps(setup, logits).tokens, (Tokens{0, 1, 2}));
}

TEST(Xtc, KeepsOnlyTheLeastLikelyTopChoice) {
  auto setup = neutral(4);
  setup.options.xtc_probability = 1;
  setup.options.xtc_threshold = 0.15;
  EXPECT_EQ(run_steps(setup, logs_of({0.5, 0.2, 0.2, 0.1})).tokens, (Tokens{2, 3}));
  setup.options.xtc_threshold = 0.3;  // one top choice only: nothing to drop
  EXPECT_EQ(run_steps(setup, logs_of({0.5, 0.2, 0.2, 0.1})).tokens, (Tokens{0, 1, 2, 3}));
}

TEST(Temperature, TinyOnesDoNotOverflow) {
  auto setup = neutral(3);
  setup.options.temperature = 1e-300;
  auto chain = SamplerChain::create(setup);
  SamplingRow row;
  for (int64_t position = 0; position < 50; ++position) {
    std::vector<float> logits = {90, 91, 89};
    auto token = chain->sample(logits, position, row);
    ASSERT_TRUE(token.ok());
    EXPECT_EQ(*token, 1);
  }
}

TEST(Registry, NamesAreUniqueAndEveryOptionIsInTheSchema) {
  std::set<std::string> names;
  for (const auto& entry : samplers().entries()) {
    EXPECT_TRUE(names.insert(entry.info.name).second) << entry.info.name;
    EXPECT_EQ(entry.info.family, "sampler");
    EXPECT_FALSE(entry.info.summary.empty());
  }
  EXPECT_EQ(names.size(), 19u);
  EXPECT_EQ(samplers().find("dry")->info.options.size(), 5u);
}

}  // namespace
}  // namespace millrace
