// The constraint step in a chain: it keeps exactly the tokens that the matcher allows, handles the end of generation,
// ignores the prompt, and clones are independent.
#include <gtest/gtest.h>

#include <cmath>

#include "sampling/chain.h"
#include "text/grammar/constraint.h"

namespace millrace {
namespace {

// Tokens 0..255 are bytes, 256 is the end, then 10,000 words, so that both ways to narrow a row are covered.
std::vector<std::string> vocabulary() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
  pieces.push_back("");
  for (int i = 0; i < 10'000; ++i) pieces.push_back("w" + std::to_string(i));
  return pieces;
}

class ConstraintStep : public ::testing::Test {
 protected:
  SamplerChain make(const char* regex) {
    Constraint constraint;
    constraint.kind = Constraint::Kind::regex;
    constraint.text = regex;
    SamplerSetup setup;
    setup.options.temperature = 0;
    setup.vocab_size = static_cast<int32_t>(pieces_.size()) + 3;  // the model's rows are wider
    setup.end_of_generation = {256};
    setup.grammar = cache_.get(constraint).value();
    return SamplerChain::create(setup).value();
  }
  // The remaining token with the largest logit; logits decrease with the id, except for `favourite`.
  TokenId sample(SamplerChain& chain, TokenId favourite = -1) {
    std::vector<float> logits(pieces_.size() + 3);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = -static_cast<float>(i);
    if (favourite >= 0) logits[static_cast<size_t>(favourite)] = 1;
    auto token = chain.sample(logits, position_++, row_);
    return token.ok() ? *token : -1;
  }
  std::vector<std::string> pieces_ = vocabulary();
  GrammarCache cache_{[this] { return pieces_; }};
  SamplingRow row_;
  int64_t position_ = 0;
};

TEST_F(ConstraintStep, KeepsAllowedTokensAndEndsWhereAllowed) {
  SamplerChain chain = make("b[cd]e?");
  for (TokenId token : {'x', 'y'}) chain.accept(token);  // a prompt
  EXPECT_EQ(sample(chain), 'b');
  chain.accept('b');
  EXPECT_FALSE(chain.ended());
  EXPECT_EQ(sample(chain, 256), 'c') << "it may not end yet";
  chain.accept('d');
  EXPECT_EQ(sample(chain, 256), 256);
  EXPECT_EQ(sample(chain, 'e'), 'e');
  chain.accept('e');
  EXPECT_TRUE(chain.ended());
  EXPECT_EQ(sample(chain), 256);
}

TEST_F(ConstraintStep, NarrowsLargeSetsInPlace) {
  SamplerChain chain = make("[^b]*");
  std::vector<float> logits(pieces_.size() + 3, 1.0f);
  chain.apply(logits, 0, row_);
  for (size_t id = 0; id < logits.size(); ++id) {
    // Bytes above 0x7F start a character, or continue one that was not started.
    const bool allowed = id < 256 ? id != 'b' && (id < 0x80 || (id >= 0xC2 && id <= 0xF4)) : id < pieces_.size();
    EXPECT_EQ(std::isinf(logits[id]), !allowed) << id;
  }
}

TEST_F(ConstraintStep, ClonesAreIndependent) {
  SamplerChain chain = make("(ab|cd)+");
  EXPECT_EQ(sample(chain), 'a');
  SamplerChain draft = chain.clone();
  chain.accept('a');
  draft.accept('c');
  EXPECT_EQ(sample(chain), 'b');
  EXPECT_EQ(sample(draft), 'd');
  draft.reset();
  EXPECT_EQ(sample(draft), 'a');
}

}  // namespace
}  // namespace millrace
