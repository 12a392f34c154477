// Work of the constraint step that is done ahead, in pieces or on another thread: the tokens, the end and the error are
// those of a chain that computes everything when it samples.
#include <gtest/gtest.h>

#include <thread>

#include "sampling/chain.h"
#include "text/grammar/constraint.h"

namespace millrace {
namespace {

class DeferredConstraint : public ::testing::Test {
 protected:
  static std::vector<std::string> vocabulary() {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
    pieces.push_back("");  // 256: the end
    for (int i = 0; i < 3000; ++i) {
      std::string word;
      for (int n = i + 30; n > 0; n /= 7) word += static_cast<char>('a' + (n * 31 + i) % 26);
      pieces.push_back(word);
    }
    return pieces;
  }
  SamplerChain make(Constraint::Kind kind, const std::string& text) {
    Constraint constraint;
    constraint.kind = kind;
    constraint.text = text;
    SamplerSetup setup;
    setup.options.temperature = 1;
    setup.options.seed = 5;
    setup.vocab_size = static_cast<int32_t>(pieces_.size());
    setup.end_of_generation = {256};
    setup.grammar = cache_.get(constraint).value();
    return SamplerChain::create(setup).value();
  }
  Result<TokenId> sample(SamplerChain& chain, int64_t position) {
    std::vector<float> logits(pieces_.size());
    for (size_t i = 0; i < logits.size(); ++i)
      logits[i] = static_cast<float>((i * 37 + static_cast<size_t>(position) * 101) % 13) * 0.3f;
    return chain.sample(logits, position, row_);
  }
  // The tokens, then -1 for an end, -2 for an error. `ahead`: what is done before each token but the first, and after.
  template <typename Ahead>
  std::vector<TokenId> answer(SamplerChain chain, int64_t most, Ahead ahead) {
    std::vector<TokenId> out;
    for (int64_t i = 0; i < most; ++i) {
      ahead(chain);
      if (chain.ended()) return out.push_back(-1), out;
      const auto token = sample(chain, i);
      if (!token.ok()) return out.push_back(-2), out;
      out.push_back(*token);
      chain.accept(*token);
      if (*token == 256) return out;
    }
    return out;
  }
  const std::vector<std::string> pieces_ = vocabulary();
  GrammarCache cache_{[this] { return pieces_; }};
  SamplingRow row_;
};

const char* kAmbiguous =
    "root ::= s\ns ::= \"a\" | \"b\" | [a-z] | s1 s1\ns1 ::= [a-z ]+ | \"(\" s \")\" | [a-z ]* s2\n"
    "s2 ::= [a-z] s2 | [a-z ]+ | \"\"";

TEST_F(DeferredConstraint, ChangesNoAnswer) {
  const std::pair<Constraint::Kind, std::string> constraints[] = {
      {Constraint::Kind::grammar, kAmbiguous},
      {Constraint::Kind::regex, "[a-z]{3,9}"},
      {Constraint::Kind::regex, "abc(def){2}"},
      {Constraint::Kind::grammar, "root ::= \"(\" root \")\" | \"x\""}};
  for (const auto& [kind, text] : constraints) {
    const auto plain = answer(make(kind, text), 30, [](SamplerChain&) {});
    const auto pieces = answer(make(kind, text), 30, [](SamplerChain& chain) {
      for (int64_t units = 1; !chain.prepare(units); units *= 2) EXPECT_NE(chain.deferred(), nullptr);
      EXPECT_EQ(chain.deferred(), nullptr);
    });
    const auto thread = answer(make(kind, text), 30, [](SamplerChain& chain) {
      if (auto work = chain.deferred())
        std::thread([&] {
          for (int64_t units = 1000; !work->run(units); units *= 2) continue;
        }).join();
      EXPECT_TRUE(chain.prepare(0));
    });
    const auto some = answer(make(kind, text), 30, [](SamplerChain& chain) { chain.prepare(3000); });
    EXPECT_GT(plain.size(), 2u) << text;
    EXPECT_EQ(pieces, plain) << text;
    EXPECT_EQ(thread, plain) << text;
    EXPECT_EQ(some, plain) << text;
  }
}

TEST_F(DeferredConstraint, ClonesHaveTheirOwnWork) {
  SamplerChain chain = make(Constraint::Kind::grammar, kAmbiguous);
  const TokenId first = sample(chain, 0).value();
  chain.accept(first);
  chain.prepare(500);
  SamplerChain copy = chain.clone();
  const auto expected = sample(copy, 1).value();
  for (int64_t units = 1; !chain.prepare(units); units *= 2) continue;
  EXPECT_EQ(sample(chain, 1).value(), expected);
  EXPECT_GT(chain.bytes(), 0u);
}

TEST_F(DeferredConstraint, PlainChainsHaveNone) {
  SamplerSetup setup;
  setup.vocab_size = 10;
  SamplerChain chain = SamplerChain::create(setup).value();
  EXPECT_TRUE(chain.prepare(0));
  EXPECT_EQ(chain.deferred(), nullptr);
  EXPECT_EQ(chain.bytes(), 0u);
}

}  // namespace
}  // namespace millrace
