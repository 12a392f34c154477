// A matcher whose table is rebuilt, whose work is spent, and whose text is forced.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/grammar/constraint.h"
#include "text/grammar/gbnf.h"

namespace millrace {
namespace {

std::vector<std::string> byte_pieces() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
  return pieces;
}

CompiledGrammar compiled_gbnf(std::string_view source, size_t table_bytes = size_t{16} << 20) {
  GrammarSpec spec;
  EXPECT_TRUE(parse_gbnf(spec, source, {}).ok());
  auto grammar = Grammar::create(spec);
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
  return {std::make_shared<const Grammar>(std::move(grammar).value()), std::make_shared<TokenMasks>(byte_pieces()), 1,
          table_bytes};
}

// A text of 100,000 counted letters, each of which makes a new set.
CompiledGrammar counted_letters(size_t table_bytes) {
  GrammarSpec spec;
  const RuleId letters = spec.add_rule("letters");
  spec.set_body(letters, spec.sequence({spec.repeat(spec.sequence({spec.bytes("a"), spec.tick()}), 0, kNoLimit),
                                        spec.bytes(".")}));
  spec.root = spec.add_rule("root");
  spec.set_body(spec.root, spec.call(letters, 100'000, 100'000));
  return {std::make_shared<const Grammar>(Grammar::create(spec).value()), std::make_shared<TokenMasks>(byte_pieces()),
          1, table_bytes};
}

TEST(MatcherTable, IsRebuiltBeforeItReachesItsPeak) {
  const CompiledGrammar compiled = counted_letters(64 << 10);
  GrammarMatcher matcher(compiled);
  std::vector<uint64_t> bits(matcher.words());
  for (int i = 0; i < 12'000; ++i) ASSERT_TRUE(matcher.accept('a')) << i;
  EXPECT_EQ(matcher.exceeded(), ParseBound::none);
  EXPECT_LT(matcher.bytes(), size_t{256} << 10) << "of more than a MiB without";
  EXPECT_EQ(matcher.mask(bits), 1u);
  EXPECT_FALSE(matcher.allows('.'));
}

TEST(MatcherTable, KeepsAShortHistoryWhenItIsRebuilt) {
  const CompiledGrammar compiled = counted_letters(64 << 10);
  GrammarMatcher matcher(compiled);
  const std::string fifty(50, 'a');
  size_t peak = 0, rebuilt = 0;
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(matcher.accept_text(fifty));
    rebuilt += matcher.bytes() < peak;
    peak = std::max(peak, matcher.bytes());
  }
  ASSERT_GE(rebuilt, 3u);
  EXPECT_EQ(matcher.rollback(100), 60u);
  for (int i = 0; i < 100'000; i += 1000) ASSERT_TRUE(matcher.accept_text(std::string(1000, 'a'))) << i;
  EXPECT_FALSE(matcher.allows('a'));
  EXPECT_TRUE(matcher.accept('.'));
  EXPECT_TRUE(matcher.complete());
}

// A text after which 3800 rules each call one with 3800 calls.
std::string heavy_rules(const char* root) {
  constexpr int kEach = 3800;
  std::string source = fmt::format("root ::= {}\nheavy ::= p0", root), inner = "j ::= (m0";
  for (int i = 1; i < kEach; ++i) source += fmt::format("|p{}", i), inner += fmt::format("|m{}", i);
  source += "\n" + inner + ") \"c\"\n";
  for (int i = 0; i < kEach; ++i)
    source += fmt::format("p{} ::= j \"a\" | \"b\" p{}\nm{} ::= \"x\" | \"y\" m{}\n", i, i, i, i);
  return source;
}

TEST(MatcherWork, OnceSpentNothingIsAccepted) {
  GrammarMatcher matcher(compiled_gbnf(heavy_rules("\"y\" \"x\" heavy")));
  std::vector<uint64_t> bits(matcher.words());
  EXPECT_EQ(matcher.mask(bits), 1u);
  ASSERT_TRUE(matcher.accept('y'));
  EXPECT_FALSE(matcher.accept('x'));
  EXPECT_EQ(matcher.exceeded(), ParseBound::work);
  EXPECT_FALSE(matcher.accept('x'));
  EXPECT_FALSE(matcher.allows('x'));
  EXPECT_EQ(matcher.mask(bits), 0u);
  EXPECT_EQ(matcher.jump_ahead(), "");
  EXPECT_EQ(matcher.exceeded(), ParseBound::work);
  ASSERT_EQ(matcher.rollback(1), 1u);
  EXPECT_EQ(matcher.exceeded(), ParseBound::none);
  EXPECT_FALSE(matcher.accept('y')) << "there is no work left, not for one byte";
  EXPECT_EQ(matcher.exceeded(), ParseBound::work);
  matcher.reset();
  EXPECT_EQ(matcher.exceeded(), ParseBound::none);
  EXPECT_TRUE(matcher.accept('y'));
}

TEST(MatcherWork, OfTheStartIsLimited) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::grammar;
  constraint.text = heavy_rules("heavy");
  const auto grammar = compile_constraint(constraint);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(grammar.error().message,
            "grammar: at the start, parsing the text takes too long; make the rules less ambiguous");
}

TEST(MatcherForced, IsTheTextThatEveryContinuationBeginsWith) {
  struct {
    std::string root, before, forced;
  } const table[] = {
      {"\"abc\" (\"d\" | \"e\") \"f\"", "", "abc"},
      {"\"abc\" (\"d\" | \"e\") \"f\"", "a", "bc"},
      {"\"abc\" (\"d\" | \"e\") \"f\"", "abce", "f"},
      {"\"abc\" (\"d\" | \"e\") \"f\"", "abcef", ""},
      {"\"ab\" \"c\"?", "", "ab"},
      {"[ab] \"c\"", "", ""},
      {"[ab] \"c\"", "a", "c"},
      {"(\"a\" | \"b\") \"c\"", "", ""},
      {"\"\\x00\\x00a\" [bc]", "", std::string("\0\0a", 3)},
      {"(\"\\x00\" | \"b\") \"c\"", "", ""},
      {"\"x\" [\\x00-a]", "", "x"},
      {"\"x\" [é]", "", "x\xC3\xA9"},
      {"\"x\" .", "", "x"},
  };
  for (const auto& [root, before, forced] : table) {
    GrammarMatcher matcher(compiled_gbnf("root ::= " + root));
    ASSERT_TRUE(before.empty() || matcher.accept_text(before));
    EXPECT_EQ(matcher.jump_ahead(), forced) << root << " after " << before;
    EXPECT_EQ(matcher.exceeded(), ParseBound::none);
    EXPECT_TRUE(forced.empty() || matcher.accept_text(forced)) << "it has not been read yet";
  }
}

TEST(MatcherForced, HasAtMostSoManyBytes) {
  GrammarMatcher matcher(compiled_gbnf("root ::= \"abcdef\""));
  const std::string all = "abcdef";
  for (size_t limit = 0; limit < 9; ++limit) EXPECT_EQ(matcher.jump_ahead(limit), all.substr(0, limit));
}

TEST(MatcherTokens, OutsideTheVocabularyAreNotAllowed) {
  GrammarMatcher matcher(compiled_gbnf("root ::= .*"));
  for (const TokenId token : {-1, 256, 257, 100'000}) {
    EXPECT_FALSE(matcher.allows(token)) << token;
    EXPECT_FALSE(matcher.accept(token)) << token;
  }
  EXPECT_TRUE(matcher.allows(0));
  EXPECT_TRUE(matcher.accept(0));
}

}  // namespace
}  // namespace millrace
