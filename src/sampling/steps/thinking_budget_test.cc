// Where thinking starts and ends: marks in the text, in any tokenization, and what reset() clears.
#include <gtest/gtest.h>

#include "sampling/steps/factories.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

// Token i is letter i; "z" is not a token, and encoding omits it.
class LetterTokenizer final : public Tokenizer {
 public:
  LetterTokenizer() {
    for (char letter = 'a'; letter < 'z'; ++letter) spec_.tokens.push_back(std::string(1, letter));
  }
  std::vector<TokenId> encode(std::string_view text, EncodeOptions) const override {
    std::vector<TokenId> out;
    for (char letter : text)
      if (letter != 'z') out.push_back(letter - 'a');
    return out;
  }
  std::string decode(const std::vector<TokenId>&, bool) const override { return {}; }
  std::string piece(TokenId id) const override { return spec_.tokens[static_cast<size_t>(id)]; }
  const TokenizerSpec& spec() const override { return spec_; }

 private:
  TokenizerSpec spec_;
};

class ThinkingBudgetStep : public ::testing::Test {
 protected:
  void begin(ThinkingBudget budget) {
    SamplerSetup setup;
    setup.thinking = std::move(budget);
    setup.tokenizer = &tokenizer_;
    step_ = make_thinking_budget(setup);
  }
  // The letter that is forced; '-' if any is allowed.
  char forced() {
    std::vector<float> logits(25, 1);
    SamplingRow row;
    row.begin(logits, 0, 0);
    step_->apply(row);
    if (row.candidates().empty()) return '?';
    return row.candidates().size() == 1 ? static_cast<char>('a' + row.candidates().front().token) : '-';
  }
  // What is forced before each of these letters, which are then accepted, and after them.
  std::string write(const std::string& text) {
    std::string out;
    for (char letter : text) {
      out += forced();
      step_->accept(letter - 'a');
    }
    return out + forced();
  }
  void prompt(const std::string& text) {
    for (char letter : text) step_->accept(letter - 'a');
  }

  LetterTokenizer tokenizer_;
  std::unique_ptr<SamplerStep> step_;
};

TEST_F(ThinkingBudgetStep, ForcesTheClosingMarkWhenTheBudgetIsSpent) {
  begin({.tokens = 2, .open = "x", .close = "cd", .begun = false});
  EXPECT_EQ(write("gxggcdgg"), "----cd---");
}

TEST_F(ThinkingBudgetStep, ForcesNothingBeforeThinkingBegins) {
  begin({.tokens = 0, .open = "xy", .close = "c", .begun = false});
  EXPECT_EQ(write("gg"), "---");
  EXPECT_EQ(write("xyc"), "--c-");
}

TEST_F(ThinkingBudgetStep, ForcesNothingAfterThinkingThatUsedItsExactBudget) {
  begin({.tokens = 2, .open = "x", .close = "cd", .begun = true});
  EXPECT_EQ(write("cdgg"), "-----");
}

TEST_F(ThinkingBudgetStep, FindsMarksAcrossTokens) {
  begin({.tokens = 0, .open = "ab", .close = "c", .begun = false});
  EXPECT_EQ(write("axxbgaagb"), "----------") << "the letters of the mark, but never adjacent";
  EXPECT_EQ(write("ab"), "--c");
  begin({.tokens = 4, .open = "x", .close = "cde", .begun = true});
  EXPECT_EQ(write("gcdeggg"), "--------");
}

TEST_F(ThinkingBudgetStep, OpeningMarkIsNotPartOfTheClosingMark) {
  begin({.tokens = 2, .open = "q", .close = "q", .begun = false});
  EXPECT_EQ(write("qggq"), "---q-");
  begin({.tokens = 2, .open = "cc", .close = "c", .begun = false});
  EXPECT_EQ(write("ccggc"), "----c-");
}

TEST_F(ThinkingBudgetStep, EndsWhenItsMarkIsForcedEvenIfTheTextDiffers) {
  begin({.tokens = 1, .open = "x", .close = "cz", .begun = true});  // only "c" has a token
  EXPECT_EQ(write("gcgxgg"), "-c-----");
}

// The mark must not be forced into the arguments of a call.
TEST_F(ThinkingBudgetStep, ForcesNothingAfterACallThatEndsThinking) {
  begin({.tokens = 3, .open = "x", .close = "cd", .begun = true, .call = "kkk"});
  EXPECT_EQ(write("kkkggg"), "-------");
  begin({.tokens = 3, .open = "x", .close = "cd", .begun = true, .call = "kkk"});
  EXPECT_EQ(write("kkgcdkk"), "---cd---");
}

TEST_F(ThinkingBudgetStep, ResetRestoresTheWholeBudget) {
  begin({.tokens = 2, .open = "x", .close = "cd", .begun = true});
  EXPECT_EQ(write("g"), "--");
  step_->reset();
  EXPECT_EQ(write("ggcdg"), "--cd--");
  step_->reset();
  EXPECT_EQ(write("ggcdg"), "--cd--") << "the mark has been forced before";
}

TEST_F(ThinkingBudgetStep, ResetClearsTheTextAndExpectsAPrompt) {
  begin({.tokens = 0, .open = "ab", .close = "c", .begun = false});
  EXPECT_EQ(write("a"), "--");
  step_->reset();
  EXPECT_EQ(write("b"), "--");
  step_->reset();
  prompt("ab");
  EXPECT_EQ(write("g"), "--") << "a mark of the prompt opens nothing";
}

}  // namespace
}  // namespace millrace
