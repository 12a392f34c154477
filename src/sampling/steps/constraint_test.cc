// The constraint step after the end of an answer, with the end tokens of a vocabulary, and when the grammar reaches a
// limit.
#include "text/grammar/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sampling/chain.h"
#include "sampling/steps/factories.h"

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;
constexpr TokenId kEnd = 256;
constexpr int32_t kConstraintVocab = 300;  // bytes, the end, and letters in threes

std::vector<std::string> constraint_vocabulary() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
  pieces.push_back("");
  while (pieces.size() < kConstraintVocab) pieces.push_back("zzz" + std::to_string(pieces.size()));
  return pieces;
}

class ConstraintEnds : public ::testing::Test {
 protected:
  SamplerSetup setup_of(const char* regex, Ids ends = {kEnd}) {
    Constraint constraint;
    constraint.kind = Constraint::Kind::regex;
    constraint.text = regex;
    SamplerSetup setup;
    setup.vocab_size = kConstraintVocab + 100;  // the model's rows are wider
    setup.end_of_generation = std::move(ends);
    setup.grammar = cache_.get(constraint).value();
    return setup;
  }
  Ids left_by(SamplerStep& step) {
    std::vector<float> logits(kConstraintVocab + 100, 1.0f);
    row_.begin(logits, 0, 0);
    step.apply(row_);
    Ids out;
    for (const Candidate& candidate : row_.candidates()) out.push_back(candidate.token);
    return out;
  }
  GrammarCache cache_{constraint_vocabulary};
  SamplingRow row_;
};

TEST_F(ConstraintEnds, OnlyEndTokensFollowAnEndToken) {
  const auto step = make_constraint(setup_of("b*"));
  EXPECT_EQ(left_by(*step), (Ids{'b', kEnd}));
  step->accept('b');
  EXPECT_FALSE(step->ended());
  step->accept(kEnd);
  EXPECT_TRUE(step->ended()) << "though more could have come";
  EXPECT_EQ(left_by(*step), (Ids{kEnd}));
  step->accept('b');
  EXPECT_EQ(left_by(*step), (Ids{kEnd}));
}

TEST_F(ConstraintEnds, ResetRestartsBeforeThePrompt) {
  const auto step = make_constraint(setup_of("b"));
  left_by(*step);
  step->accept('b');
  EXPECT_TRUE(step->ended());
  step->accept(kEnd);
  step->reset();
  EXPECT_FALSE(step->ended());
  for (TokenId token : {'x', 'y'}) step->accept(token);  // the next prompt
  EXPECT_FALSE(step->ended());
  EXPECT_EQ(left_by(*step), (Ids{'b'}));
}

TEST_F(ConstraintEnds, EmptyAnswerEndsOnlyWhenRequested) {
  const auto step = make_constraint(setup_of("(ab){0}"));
  EXPECT_FALSE(step->ended()) << "the prompt comes first";
  EXPECT_EQ(left_by(*step), (Ids{kEnd}));
  EXPECT_TRUE(step->ended());
}

TEST_F(ConstraintEnds, EndTokensOutsideTheVocabularyAreIgnored) {
  const auto step =
      make_constraint(setup_of("b?", {-1, -70, 0, kEnd, kConstraintVocab, kConstraintVocab + 1, 1 << 30}));
  EXPECT_EQ(left_by(*step), (Ids{0, 'b', kEnd}));
}

// Brackets around an x. Nesting is limited to 1000 calls, so a stream that opens more cannot continue.
class ConstraintBounds : public ::testing::Test {
 protected:
  static constexpr TokenId kOpen = 0, kX = 2, kStop = 3;
  SamplerSetup setup_of(bool with_x) {
    pieces_ = {"(", ")", with_x ? "x" : "", ""};
    Constraint constraint;
    constraint.kind = Constraint::Kind::grammar;
    constraint.text = R"gbnf(root ::= "(" root ")" | "x")gbnf";
    SamplerSetup setup;
    setup.options.temperature = 0;
    setup.vocab_size = 4;
    setup.end_of_generation = {kStop};
    setup.grammar = cache_.get(constraint).value();
    return setup;
  }
  void apply(SamplerStep& step) {
    std::vector<float> logits(4, 1.0f);
    row_.begin(logits, 0, 0);
    step.apply(row_);
  }
  // Accepts as many as the grammar allows.
  static int open_brackets(SamplerStep& step) {
    int opened = 0;
    while (opened < 2000 && !step.failure() && !step.ended()) step.accept(kOpen), ++opened;
    return opened;
  }
  std::vector<std::string> pieces_;
  GrammarCache cache_{[this] { return pieces_; }};
  SamplingRow row_;
};

TEST_F(ConstraintBounds, TooDeepTokenIsAnErrorNotAnEnd) {
  const auto step = make_constraint(setup_of(true));
  apply(*step);
  EXPECT_GT(open_brackets(*step), 500);
  ASSERT_NE(step->failure(), nullptr);
  EXPECT_EQ(step->failure()->kind, ErrorKind::unsupported);
  EXPECT_EQ(step->failure()->message, "constraint: the rules are nested too deeply at this point; nest them less");
  EXPECT_FALSE(step->ended());
  apply(*step);
  EXPECT_TRUE(row_.candidates().empty()) << "the allowed tokens are unknown";
  step->accept(kX);
  EXPECT_NE(step->failure(), nullptr);
}

TEST_F(ConstraintBounds, ResetClearsTheError) {
  const auto step = make_constraint(setup_of(true));
  apply(*step);
  open_brackets(*step);
  step->reset();
  EXPECT_EQ(step->failure(), nullptr);
  apply(*step);
  EXPECT_EQ(row_.candidates().size(), 2u);
  step->accept(kX);
  EXPECT_TRUE(step->ended());
}

// Without an x every token nests deeper, until none is allowed.
TEST_F(ConstraintBounds, StreamWithoutAllowedTokensEndsWithTheError) {
  auto chain = SamplerChain::create(setup_of(false)).value();
  Result<TokenId> token = kOpen;
  int opened = 0;
  for (; opened < 2000 && token.ok(); ++opened) {
    std::vector<float> logits(4, 1.0f);
    token = chain.sample(logits, opened, row_);
    if (token.ok()) chain.accept(*token);
  }
  EXPECT_GT(opened, 500);
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(token.error().message.rfind("constraint: ", 0), 0u) << token.error().message;
  EXPECT_FALSE(chain.ended());
}

}  // namespace
}  // namespace millrace
