#include "sampling/setup.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sampling/chain.h"

namespace millrace {
namespace {

// Each token is a word; encoding cuts text into single bytes.
class WordTokenizer final : public Tokenizer {
 public:
  WordTokenizer() {
    spec_.tokens = {"a", "b", "\n", "b\n", "ab", "</s>", "-"};
    spec_.eog = {5};
  }
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const override {
    EXPECT_FALSE(options.add_special);
    std::vector<TokenId> out;
    for (char c : text) {
      auto found = std::find(spec_.tokens.begin(), spec_.tokens.end(), std::string(1, c));
      if (found != spec_.tokens.end()) out.push_back(static_cast<TokenId>(found - spec_.tokens.begin()));
    }
    return out;
  }
  std::string decode(const std::vector<TokenId>&, bool) const override { return {}; }
  std::string piece(TokenId id) const override { return spec_.tokens[static_cast<size_t>(id)]; }
  const TokenizerSpec& spec() const override { return spec_; }

 private:
  TokenizerSpec spec_;
};

TEST(SamplerSetup, TakesEndsAndVocabularyFromTheTokenizer) {
  WordTokenizer tokenizer;
  Request request;
  request.min_tokens = 3;
  request.sampling.dry_multiplier = 1;
  auto setup = make_sampler_setup(request, tokenizer);
  EXPECT_EQ(setup.vocab_size, 7);
  EXPECT_EQ(setup.min_tokens, 3);
  EXPECT_EQ(setup.end_of_generation, (std::vector<TokenId>{5}));
  EXPECT_EQ(setup.dry_breakers, (std::vector<std::vector<TokenId>>{{2}, {3}}));
  request.sampling.dry_multiplier = 0;
  EXPECT_TRUE(make_sampler_setup(request, tokenizer).dry_breakers.empty());
}

// Thinking between "-" and "b\n", at most two tokens: after that only "b" and "\n" can follow.
TEST(ThinkingBudget, ClosesLongThinking) {
  WordTokenizer tokenizer;
  Request request;
  request.sampling.temperature = 0;
  request.sampling.banned_tokens = {1};
  request.thinking = {2, "-", "b\n", false};
  auto chain = SamplerChain::create(make_sampler_setup(request, tokenizer)).value();
  SamplingRow row;
  const auto next = [&] {
    std::vector<float> logits = {1, 0, 0, 0, 0, 0, 0};  // "a", if it may
    return *chain.sample(logits, 0, row);
  };
  const auto write = [&](std::initializer_list<TokenId> tokens) {
    for (TokenId token : tokens) {
      next();
      chain.accept(token);
    }
  };
  chain.accept(6);  // of the prompt
  write({0, 0, 0, 6, 0, 0});
  EXPECT_EQ(next(), 1);
  chain.accept(1);
  EXPECT_EQ(next(), 2);
  chain.accept(2);
  EXPECT_EQ(next(), 0) << "it is closed";
  write({6, 0, 0});
  EXPECT_EQ(next(), 0) << "for good";
  chain.reset();
  write({6, 3});  // closed early, by another token
  write({0, 0});
  EXPECT_EQ(next(), 0);
  request.thinking.begun = true;
  request.thinking.tokens = 0;
  chain = SamplerChain::create(make_sampler_setup(request, tokenizer)).value();
  EXPECT_EQ(next(), 1);
  request.thinking.tokens = -1;
  chain = SamplerChain::create(make_sampler_setup(request, tokenizer)).value();
  EXPECT_EQ(next(), 0);
}

TEST(SamplerSetup, TakesEndTokensAndBadWordsFromTheRequest) {
  WordTokenizer tokenizer;
  Request request;
  request.bad_words = {{1, 2}, {4}};
  request.stop_tokens = {3, 0};
  const auto ends = [&](int64_t min_tokens, bool ignore_eos) {
    request.min_tokens = min_tokens;
    request.ignore_eos = ignore_eos;
    const SamplerSetup setup = make_sampler_setup(request, tokenizer);
    EXPECT_EQ(setup.bad_words, request.bad_words);
    EXPECT_EQ(setup.ignore_eos, ignore_eos);
    return setup.end_of_generation;
  };
  const std::vector<TokenId> own = {5}, all = {5, 3, 0};
  EXPECT_EQ(ends(0, false), own) << "stop tokens are banned only before min_tokens";
  EXPECT_EQ(ends(1, false), all);
  EXPECT_EQ(ends(1, true), own) << "ignore_eos does not affect stop tokens";
  EXPECT_EQ(ends(0, true), own);
}

TEST(SamplerSetup, FirstTokenMayBreakASequence) {
  WordTokenizer tokenizer;
  EXPECT_EQ(tokenize_breakers({"a"}, tokenizer), (std::vector<std::vector<TokenId>>{{0}, {4}}));
}

TEST(SamplerSetup, BreakersOfSeveralTokensAreSequencesToo) {
  WordTokenizer tokenizer;
  EXPECT_EQ(tokenize_breakers({"ab", "-\n"}, tokenizer), (std::vector<std::vector<TokenId>>{{4}, {0, 1}, {6, 2}}));
}

}  // namespace
}  // namespace millrace
