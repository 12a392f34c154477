// Steps that edit logits or remove tokens: the history they retain, and what reset() clears.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;

std::vector<float> edited(SamplerStep& step, std::vector<float> logits) {
  SamplingRow row;
  row.begin(logits, 0, 0);
  step.apply(row);
  return logits;
}

void accept(SamplerStep& step, const Ids& tokens) {
  for (TokenId token : tokens) step.accept(token);
}

TEST(Penalties, DividePositiveAndMultiplyOtherLogits) {
  SamplerSetup setup;
  setup.options.repetition_penalty = 2;
  const auto step = make_penalties(setup);
  accept(*step, {0, 1, 2, 3});
  EXPECT_EQ(edited(*step, {0.5f, 0, -0.5f, 1, 4}), (std::vector<float>{0.25f, 0, -1, 0.5f, 4}));
}

TEST(Penalties, CountEveryTokenOfTheWindow) {
  SamplerSetup setup;
  setup.options.frequency_penalty = 1;
  setup.options.penalty_window = 3;
  const auto step = make_penalties(setup);
  accept(*step, {0, 1});
  EXPECT_EQ(edited(*step, {0, 0, 0}), (std::vector<float>{-1, -1, 0}));
  accept(*step, {1});
  EXPECT_EQ(edited(*step, {0, 0, 0}), (std::vector<float>{-1, -2, 0}));
  accept(*step, {2});
  EXPECT_EQ(edited(*step, {0, 0, 0}), (std::vector<float>{0, -2, -1}));
}

TEST(Penalties, ResetEmptiesTheWindow) {
  SamplerSetup setup;
  setup.options.frequency_penalty = 1;
  setup.options.penalty_window = 2;
  const auto step = make_penalties(setup);
  accept(*step, {0, 1});
  step->reset();
  EXPECT_EQ(edited(*step, {0, 0, 0}), (std::vector<float>{0, 0, 0}));
  accept(*step, {2, 2});
  EXPECT_EQ(edited(*step, {0, 0, 0}), (std::vector<float>{0, 0, -2}));
}

TEST(AllowedTokens, AreUniqueAndSorted) {
  SamplerSetup setup;
  setup.options.allowed_tokens = {3, 0, 3, 2, 0};
  std::vector<float> logits = {1, 2, 3, 4};
  SamplingRow row;
  row.begin(logits, 0, 0);
  make_allowed_tokens(setup)->apply(row);
  Ids left;
  for (const Candidate& candidate : row.candidates()) left.push_back(candidate.token);
  EXPECT_EQ(left, (Ids{0, 2, 3}));
}

// The tokens that complete a word, from the whole history.
std::vector<bool> completing(const std::vector<Ids>& words, const Ids& past, size_t vocab) {
  std::vector<bool> out(vocab, false);
  for (const Ids& word : words) {
    Ids whole = past;
    whole.push_back(word.back());
    if (whole.size() < word.size()) continue;
    const bool fits = std::equal(word.begin(), word.end(), whole.end() - static_cast<ptrdiff_t>(word.size()));
    if (fits) out[static_cast<size_t>(word.back())] = true;
  }
  return out;
}

TEST(BadWords, AreBannedWhateverTheHistoryLength) {
  std::mt19937 engine(2);
  SamplerSetup setup;
  setup.bad_words = {{0, 1, 2}, {1, 1, 0}, {2, 1}, {0, 0, 0, 0, 3}};
  for (int round = 0; round < 200; ++round) {
    const auto step = make_bad_words(setup);
    Ids past;
    for (int length = 0; length < 60; ++length) {
      const auto logits = edited(*step, {1, 1, 1, 1});
      const auto expected = completing(setup.bad_words, past, 4);
      for (size_t token = 0; token < 4; ++token)
        ASSERT_EQ(logits[token] != 1, expected[token]) << round << ' ' << length << ' ' << token;
      past.push_back(static_cast<TokenId>(engine() % (round % 2 == 0 ? 2 : 3)));
      step->accept(past.back());
    }
  }
}

TEST(BadWords, ResetClearsTheHistory) {
  SamplerSetup setup;
  setup.bad_words = {{1, 2}};
  const auto step = make_bad_words(setup);
  step->accept(1);
  EXPECT_NE(edited(*step, {1, 1, 1})[2], 1);
  step->reset();
  EXPECT_EQ(edited(*step, {1, 1, 1})[2], 1);
}

}  // namespace
}  // namespace millrace
