// A matcher exactly at its bounds: when its table is rebuilt, how far its history reaches, and that it asks for the
// mask of each parse.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "text/grammar/matcher.h"

namespace millrace {
namespace {

struct EdgeRules {
  GrammarSpec spec;
  RuleId rule(ExprId body) {
    const RuleId id = spec.add_rule("r" + std::to_string(spec.rules().size()));
    spec.set_body(id, body);
    return id;
  }
  RuleId letters() {
    return rule(
        spec.sequence({spec.repeat(spec.sequence({spec.bytes("a"), spec.tick()}), 0, kNoLimit), spec.bytes(".")}));
  }
  CompiledGrammar compiled(ExprId root, size_t table_bytes = size_t{16} << 20) {
    spec.root = rule(root);
    auto grammar = Grammar::create(spec);
    EXPECT_TRUE(grammar.ok()) << grammar.error().message;
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 128; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
    return {std::make_shared<const Grammar>(std::move(grammar).value()), std::make_shared<TokenMasks>(pieces), 1,
            table_bytes};
  }
};

// Each letter makes a frame and a set.
CompiledGrammar long_text(size_t table_bytes) {
  EdgeRules rules;
  const RuleId letters = rules.letters();
  return rules.compiled(rules.spec.call(letters, 100'000, 100'000), table_bytes);
}

TEST(MatcherEdges, TheTableIsRebuiltAtItsBound) {
  GrammarMatcher large(long_text(size_t{16} << 20));
  size_t held = 0;
  int letters = 0;
  for (int i = 1; i <= 600; ++i) {
    ASSERT_TRUE(large.accept('a'));
    if (large.bytes() > held && i > 200) letters = i;
    held = std::max(held, large.bytes());
    if (letters > 0) break;  // it has just grown
  }
  ASSERT_GT(letters, 0);
  for (const size_t above : {0, 1}) {  // the bound is that much above what the table holds
    GrammarMatcher matcher(long_text(held + above));
    for (int i = 0; i < letters; ++i) ASSERT_TRUE(matcher.accept('a'));
    ASSERT_EQ(matcher.bytes(), held);
    EXPECT_FALSE(matcher.allows('.'));
    EXPECT_EQ(matcher.bytes() == held, above == 1) << matcher.bytes() << " of " << held;
    EXPECT_EQ(matcher.exceeded(), ParseBound::none);
  }
}

TEST(MatcherEdges, ATableTooLargeForItsHistoryForgetsIt) {
  GrammarMatcher matcher(long_text(60'000));
  size_t forgotten = 0;
  for (int i = 0; i < 900; ++i) {
    ASSERT_TRUE(matcher.accept('a'));
    GrammarMatcher copy = matcher;
    const size_t known = copy.rollback(10'000);
    ASSERT_GE(known, 1u);
    forgotten = std::max(forgotten, static_cast<size_t>(i + 1) - known);
    ASSERT_EQ(matcher.exceeded(), ParseBound::none);
  }
  EXPECT_GT(forgotten, 0u) << "900 sets take more than half of the bytes";
  EXPECT_EQ(matcher.jump_ahead(3), "aaa");
}

TEST(MatcherEdges, AtMostSoManyTokensAreUndone) {
  constexpr size_t kMax = GrammarMatcher::kMaxRollback;
  for (const size_t tokens : {size_t{5}, kMax, kMax + 1, 2 * kMax - 1, 2 * kMax}) {
    GrammarMatcher matcher(long_text(size_t{64} << 20));
    for (size_t i = 0; i < tokens; ++i) ASSERT_TRUE(matcher.accept('a'));
    GrammarMatcher copy = matcher;
    EXPECT_EQ(copy.rollback(100'000), tokens) << "the history is cut once it is twice as long";
    ASSERT_TRUE(matcher.accept('a'));
    EXPECT_EQ(matcher.rollback(100'000), tokens < 2 * kMax ? tokens + 1 : kMax + 1);
    EXPECT_EQ(matcher.rollback(1), 0u);
    EXPECT_TRUE(matcher.allows('a'));
  }
}

TEST(MatcherEdges, EachParseIsAskedForItsMask) {
  EdgeRules rules;
  const auto nested = [&](const char* end, const char* last) {
    const RuleId id = rules.rule(rules.spec.never());
    rules.spec.set_body(
        id, rules.spec.choice({rules.spec.bytes(last), rules.spec.sequence({rules.spec.bytes("x"), rules.spec.call(id),
                                                                            rules.spec.bytes(end)})}));
    return id;
  };
  std::vector<ExprId> ways;
  for (const auto& [end, last] : {std::pair{"1", "p"}, {"2", "q"}, {"3", "r"}})
    ways.push_back(rules.spec.call(nested(end, last)));
  const CompiledGrammar compiled = rules.compiled(rules.spec.choice(ways));
  GrammarMatcher matcher(compiled);
  std::vector<uint64_t> bits(matcher.words());
  EXPECT_EQ(matcher.mask(bits), 4u) << "x, p, q and r";
  EXPECT_EQ(compiled.masks->computed(), 3);
  ASSERT_TRUE(matcher.accept('x'));
  EXPECT_EQ(matcher.mask(bits), 4u);
  EXPECT_EQ(compiled.masks->computed(), 3) << "the parses are in the same states";
  ASSERT_TRUE(matcher.accept('q'));
  EXPECT_EQ(matcher.mask(bits), 1u);
  EXPECT_EQ(compiled.masks->computed(), 4) << "one parse is left";
}

// So deep that a token might nest beyond the limit of 1000 calls, the vocabulary is walked instead.
TEST(MatcherEdges, MasksApplyUpToADepth) {
  EdgeRules rules;
  const RuleId nested = rules.rule(rules.spec.never());
  rules.spec.set_body(nested, rules.spec.choice({rules.spec.bytes("x"),
                                                 rules.spec.sequence({rules.spec.bytes("("), rules.spec.call(nested),
                                                                      rules.spec.bytes(")")})}));
  const CompiledGrammar compiled = rules.compiled(rules.spec.call(nested));
  for (const size_t depth : {size_t{1}, size_t{499}, size_t{500}, size_t{501}, size_t{900}}) {
    CompiledGrammar fresh = compiled;
    fresh.masks = std::make_shared<TokenMasks>(std::vector<std::string>{"x", "(", ")"});
    GrammarMatcher matcher(fresh);
    ASSERT_TRUE(matcher.accept_text(std::string(depth, '(')));
    std::vector<uint64_t> bits(matcher.words());
    EXPECT_EQ(matcher.mask(bits), 2u);
    EXPECT_EQ(fresh.masks->computed(), depth <= 500 ? 1 : 0) << depth;
  }
}

// Beyond 64 parses the whole vocabulary is walked at once.
TEST(MatcherEdges, ManyParsesAreNotAskedOneByOne) {
  for (const int n : {63, 64, 65}) {
    EdgeRules rules;
    std::vector<ExprId> ways;
    for (int i = 0; i < n; ++i) {
      const RuleId id = rules.rule(rules.spec.never());
      const auto c = static_cast<char>('0' + i);
      rules.spec.set_body(id, rules.spec.choice({rules.spec.bytes(std::string(1, c)),
                                                 rules.spec.sequence({rules.spec.bytes(" "), rules.spec.call(id),
                                                                      rules.spec.bytes("!")})}));
      ways.push_back(rules.spec.call(id));
    }
    const CompiledGrammar compiled = rules.compiled(rules.spec.choice(ways));
    GrammarMatcher matcher(compiled);
    std::vector<uint64_t> bits(matcher.words());
    EXPECT_EQ(matcher.mask(bits), static_cast<size_t>(n) + 1);
    EXPECT_EQ(compiled.masks->computed(), n <= 64 ? n : 0) << n;
  }
}

}  // namespace
}  // namespace millrace
