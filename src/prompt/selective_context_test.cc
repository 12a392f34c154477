// Selective Context against a plain definition over random prompts, and its units, bounds and messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/philox.h"
#include "prompt/compressor.h"
#include "prompt/text_units.h"

namespace millrace {
namespace {

constexpr int64_t kNoBudget = std::numeric_limits<int64_t>::max();

std::vector<TokenRange> units_of(const std::vector<std::string>& texts, TextUnit unit, std::vector<char> fixed = {}) {
  fixed.resize(texts.size());
  return split_units(texts, fixed, unit);
}

TEST(TextUnits, WordsBeginAtWhiteSpace) {
  const std::vector<std::string> texts = {"Hello", " Ann", "ie", ".", "\n", "Sit", " down"};
  EXPECT_EQ(units_of(texts, TextUnit::word), (std::vector<TokenRange>{{0, 1}, {1, 3}, {4, 1}, {5, 1}, {6, 1}}));
  EXPECT_EQ(units_of(texts, TextUnit::token).size(), texts.size());
  EXPECT_EQ(units_of(texts, TextUnit::word, {0, 0, 1, 0, 0, 0, 0}),
            (std::vector<TokenRange>{{0, 1}, {1, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}}));
  EXPECT_TRUE(units_of({}, TextUnit::word).empty());
}

TEST(TextUnits, SentencesEndBeforeWhiteSpaceOrWithALine) {
  EXPECT_EQ(units_of({"It", " is", " 3", ".", "14", ".", " Yes", "!", "\"", " He", " left"}, TextUnit::sentence),
            (std::vector<TokenRange>{{0, 6}, {6, 3}, {9, 2}}));
  EXPECT_EQ(units_of({"Title", "\n", "\n", "Text", "\n", " more"}, TextUnit::sentence),
            (std::vector<TokenRange>{{0, 2}, {2, 1}, {3, 2}, {5, 1}}));
  EXPECT_EQ(units_of({"\u597d", "\u3002", "\u662f"}, TextUnit::sentence), (std::vector<TokenRange>{{0, 2}, {2, 1}}));
  EXPECT_EQ(units_of({"...", " and", " so", "?!", " on"}, TextUnit::sentence),
            (std::vector<TokenRange>{{0, 1}, {1, 3}, {4, 1}}));
}

TEST(TextUnits, TheLastFreeTokens) {
  const std::vector<char> fixed = {1, 0, 0, 1, 0, 1};
  EXPECT_EQ(with_last_fixed(fixed, 0), fixed);
  EXPECT_EQ(with_last_fixed(fixed, 2), (std::vector<char>{1, 0, 1, 1, 1, 1}));
  EXPECT_EQ(with_last_fixed(fixed, 9), std::vector<char>(6, 1));
}

struct RandomPrompt {
  std::vector<TokenId> tokens;
  std::vector<std::string> texts;
  std::vector<char> fixed;
  std::vector<float> scores;

  PromptView view() const { return {tokens, texts, fixed, {}}; }
};

// Scores by place in the prompt.
class ScoresByPlace final : public PromptScores {
 public:
  explicit ScoresByPlace(std::vector<float> scores) : scores_(std::move(scores)) {}
  Result<std::vector<float>> self_information(const std::string&, std::span<const TokenId>) override { return scores_; }
  Result<std::vector<std::vector<float>>> embeddings(const std::string&,
                                                     std::span<const std::vector<TokenId>>) override {
    return Error::internal("not asked for");
  }

  Result<std::string> answer(const std::string&, const std::string&, int64_t) override {
    return Error::internal("not asked for");
  }

 private:
  std::vector<float> scores_;
};

std::vector<int64_t> kept_of(const PromptCompressor& compressor, const RandomPrompt& prompt, int64_t budget) {
  ScoresByPlace scores(prompt.scores);
  auto rest = compressor.compress(prompt.view(), scores, budget);
  EXPECT_TRUE(rest.ok());
  return rest->kept;
}

RandomPrompt random_prompt(uint64_t seed, int64_t count) {
  RandomPrompt out;
  uint64_t drawn = 0;
  const auto draw = [&](int below) { return static_cast<int>(philox_uniform(seed, 7, drawn++) * below); };
  for (int64_t i = 0; i < count; ++i) {
    out.tokens.push_back(draw(100));
    out.texts.push_back(std::vector<std::string>{" a", "b", ".", " c", "\n", " d!", "?"}[static_cast<size_t>(draw(7))]);
    out.fixed.push_back(draw(6) == 0);
    out.scores.push_back(static_cast<float>(draw(12)) / 4);  // with ties
  }
  if (count > 0) out.scores[0] = std::numeric_limits<float>::infinity();
  return out;
}

// The plain definition: unit by unit, the one with the least information among those that remain.
std::vector<int64_t> plain(const RandomPrompt& prompt, TextUnit unit, double ratio, int64_t keep_last, int64_t most) {
  std::vector<char> fixed = prompt.fixed;
  for (size_t i = fixed.size(); i-- > 0 && keep_last > 0;)
    if (!fixed[i]) fixed[i] = 1, --keep_last;
  const auto units = split_units(prompt.texts, fixed, unit);
  std::set<int64_t> kept;
  for (int64_t i = 0; i < std::ssize(prompt.tokens); ++i) kept.insert(i);
  std::vector<char> gone(units.size());
  for (int64_t dropped = 0;; ++dropped) {
    const bool enough = dropped >= static_cast<int64_t>(ratio * static_cast<double>(units.size()));
    if (enough && std::ssize(kept) <= most) break;
    int64_t least = -1;
    double information = 0;
    for (size_t u = 0; u < units.size(); ++u) {
      if (gone[u]) continue;
      double sum = 0;
      for (int64_t i = 0; i < units[u].count; ++i)
        sum += static_cast<double>(prompt.scores[static_cast<size_t>(units[u].first + i)]);
      if (least < 0 || sum < information) least = static_cast<int64_t>(u), information = sum;
    }
    if (least < 0 || std::ssize(kept) == units[static_cast<size_t>(least)].count) break;
    gone[static_cast<size_t>(least)] = 1;
    for (int64_t i = 0; i < units[static_cast<size_t>(least)].count; ++i)
      kept.erase(units[static_cast<size_t>(least)].first + i);
  }
  return {kept.begin(), kept.end()};
}

TEST(SelectiveContext, KeepsWhatThePlainDefinitionKeeps) {
  const char* const names[] = {"token", "word", "sentence"};
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const RandomPrompt prompt = random_prompt(seed, static_cast<int64_t>(seed % 40));
    const int u = static_cast<int>(seed % 3);
    const double ratio = static_cast<double>(seed % 11) / 11;
    const int64_t last = static_cast<int64_t>(seed % 4) * 2,
                  budget = seed % 5 == 0 ? 1 + static_cast<int64_t>(seed % 17) : kNoBudget;
    const auto made = make_prompt_compressor("selective_context:unit=" + std::string(names[u]) +
                                             ",ratio=" + std::to_string(ratio) + ",keep_last=" + std::to_string(last));
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto kept = kept_of(**made, prompt, budget);
    ASSERT_EQ(kept, plain(prompt, static_cast<TextUnit>(u), std::stod(std::to_string(ratio)), last, budget)) << seed;
    EXPECT_EQ(kept, kept_of(**made, prompt, budget));
    EXPECT_TRUE(std::ranges::is_sorted(kept));
    EXPECT_EQ(kept.empty(), prompt.tokens.empty());
    int64_t fixed = 0;
    for (size_t i = 0; i < prompt.fixed.size(); ++i) {
      fixed += prompt.fixed[i];
      EXPECT_TRUE(!prompt.fixed[i] || std::ranges::binary_search(kept, static_cast<int64_t>(i)));
    }
    EXPECT_TRUE(fixed == 0 || std::ssize(kept) <= std::max(budget, fixed + last)) << seed;
  }
}

TEST(SelectiveContext, ABudgetDropsMoreThanTheRatio) {
  const RandomPrompt prompt = random_prompt(3, 30);
  for (int64_t budget = 30; budget > 0; --budget) {
    const auto all = make_prompt_compressor("selective_context:ratio=0,unit=token,keep_last=0");
    const auto limited =
        make_prompt_compressor("selective_context:ratio=0,unit=token,keep_last=0,tokens=" + std::to_string(budget));
    ASSERT_TRUE(all.ok() && limited.ok());
    const auto kept = kept_of(**all, prompt, budget);
    EXPECT_EQ(std::ssize(kept), std::max(budget, static_cast<int64_t>(std::ranges::count(prompt.fixed, char{1}))));
    EXPECT_EQ(kept, kept_of(**limited, prompt, kNoBudget));
  }
}

TEST(SelectiveContext, ARateCountsTokens) {
  const RandomPrompt prompt = random_prompt(5, 40);
  const int64_t fixed = std::ranges::count(prompt.fixed, char{1}), free = 40 - fixed;
  for (const double rate : {0.25, 0.5, 0.9}) {
    const auto made = make_prompt_compressor("selective_context:unit=token,keep_last=0,rate=" + std::to_string(rate));
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(std::ssize(kept_of(**made, prompt, kNoBudget)), fixed + std::llround(rate * static_cast<double>(free)));
  }
}

std::string refusal(const char* text) {
  const auto made = make_prompt_compressor(text);
  return made.ok() ? "" : made.error().message;
}

TEST(SelectiveContext, Messages) {
  EXPECT_EQ(refusal("summary").substr(0, 44), "prompt: unknown 'summary'; available: random");
  EXPECT_EQ(refusal("selective_context:scope=system"),
            "prompt selective_context: scope: expected all, documents, history or tools, got 'system'");
  EXPECT_EQ(refusal("selective_context:ratio=1"), "prompt selective_context: ratio: must be between 0 and 0.99, got 1");
  EXPECT_EQ(refusal("selective_context:unit=line"),
            "prompt selective_context: unit: expected token, word or sentence, got 'line'");
  EXPECT_EQ(
      refusal("selective_context:share=1"),
      "prompt selective_context: share: no such option; known: ratio, unit, keep_last, tokens, rate, scope, model");
  const auto made = make_prompt_compressor("selective_context:model=small.gguf");
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)->model(), "small.gguf");
  EXPECT_EQ((*made)->needs(), kNeedsSelfInformation);
}

}  // namespace
}  // namespace millrace
