// Slices of work: a matcher that pauses after a few units allows the same tokens, accepts the same texts and ends at
// the same bound as one that never pauses, and no call does much more than its slice. Work is counted, not timed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "text/grammar/grammar_test.h"

namespace millrace {
namespace {

using testing::gbnf_of;
using testing::regex_of;
using testing::schema_of;

std::vector<std::string> wordy_vocabulary() {
  std::vector<std::string> pieces = testing::small_vocabulary();
  std::mt19937 random(7);
  for (int i = 0; i < 4000; ++i) {
    std::string word = random() % 3 == 0 ? " " : "";
    for (uint32_t n = 1 + random() % 7; n > 0; --n) word += static_cast<char>('a' + random() % 26);
    pieces.push_back(word);
  }
  return pieces;
}

// Rules whose parses multiply with every letter.
const char* kNested =
    "root ::= s\ns ::= \"a\" | \"b\" | [a-z] | s1 s1\ns1 ::= [a-z ]+ | \"(\" s \")\" | [a-z ]* s2\n"
    "s2 ::= [a-z] s2 | [a-z ]+ | \"\"";
const char* kOverlap = "root ::= x*\nx ::= y | z | y z\ny ::= [a-z ]+\nz ::= [a-z ]+ | [a-z] z";

// Every byte multiplies the parses, until a bound ends the stream.
std::string multiplying() {
  std::string text = "root ::=", ways = "s ::= \"a\"";
  for (int i = 0; i < 50; ++i) text += " s";
  text += " \"!\"\n";
  for (int r = 0; r < 20; ++r) {
    ways += fmt::format(" | t{}", r);
    text += fmt::format("t{} ::= \"a\" s u{} | \"a\" s s\nu{} ::= \"a\" u{} \"a\" | \"a\"\n", r, r, r, r);
  }
  return text + ways + "\n";
}

struct SliceCounts {
  int64_t calls = 0, pauses = 0, beyond = 0;  // beyond: most units past the end of a slice
};

// Repeats a call with slices that double until it does not pause.
template <typename Call>
auto in_slices(GrammarMatcher& matcher, int64_t first, SliceCounts& counts, Call call) {
  for (int64_t units = first;; units *= 2) {
    matcher.set_slice(units);
    auto result = call();
    ++counts.calls;
    counts.beyond = std::max(counts.beyond, -matcher.slice_left());
    if (!matcher.paused()) return result;
    ++counts.pauses;
  }
}

// Takes allowed tokens at random, long ones rather than short ones.
TokenId chosen_token(std::span<const uint64_t> bits, const TokenTrie& trie, std::mt19937& random) {
  std::vector<TokenId> allowed;
  for (TokenId token = 0; token < trie.vocab_size(); ++token)
    if (bits[static_cast<size_t>(token) / 64] >> (token % 64) & 1) allowed.push_back(token);
  TokenId best = allowed[random() % allowed.size()];
  for (int i = 0; i < 3; ++i) {
    const TokenId other = allowed[random() % allowed.size()];
    if (trie.piece(other).size() > trie.piece(best).size()) best = other;
  }
  return best;
}

SliceCounts compare_slices(const CompiledGrammar& whole, const CompiledGrammar& sliced, int64_t first, int tokens) {
  SliceCounts counts;
  GrammarMatcher one(whole), two(sliced, false);
  std::vector<uint64_t> a(one.words()), b(two.words());
  std::mt19937 random(3);
  for (int i = 0; i < tokens; ++i) {
    const size_t allowed = one.mask(a);
    EXPECT_EQ(in_slices(two, first, counts, [&] { return two.mask(b); }), allowed) << i;
    EXPECT_EQ(a, b) << i;
    EXPECT_EQ(one.exceeded(), two.exceeded()) << i;
    EXPECT_EQ(one.complete(), two.complete()) << i;
    if (allowed == 0 || a != b) break;
    const TokenId token = chosen_token(a, whole.masks->trie(), random);
    const bool accepted = one.accept(token);
    EXPECT_EQ(in_slices(two, first, counts, [&] { return two.accept(token); }), accepted) << i;
    EXPECT_EQ(one.exceeded(), two.exceeded()) << i;
    EXPECT_EQ(one.exhausted(), two.exhausted()) << i;
    if (!accepted) break;
  }
  return counts;
}

class MatcherSlices : public ::testing::Test {
 protected:
  // Compiles with a new cache, in which no mask is stored yet.
  CompiledGrammar fresh(const Constraint& constraint, size_t table_bytes = size_t{16} << 20) {
    auto grammar = compile_constraint(constraint);
    EXPECT_TRUE(grammar.ok()) << grammar.error().message;
    return {std::make_shared<const Grammar>(std::move(grammar).value()), std::make_shared<TokenMasks>(pieces_), 1,
            table_bytes};
  }
  const std::vector<std::string> pieces_ = wordy_vocabulary();
};

TEST_F(MatcherSlices, ChangeNothing) {
  const Constraint constraints[] = {gbnf_of(kNested), gbnf_of(kOverlap), regex_of("([a-z]+ ?){2,40}"),
                                    schema_of(R"({"type":"object","properties":{"name":{"type":"string","maxLength":40},
                    "items":{"type":"array","items":{"type":"integer"},"maxItems":5}},"required":["name","items"]})")};
  for (const Constraint& constraint : constraints) {
    for (const int64_t first : {1, 1000, 30'000}) {
      const SliceCounts counts = compare_slices(fresh(constraint), fresh(constraint), first, 25);
      EXPECT_GT(counts.calls, counts.pauses);
      if (first == 1) {
        EXPECT_GT(counts.pauses, 10) << constraint.text;
      }
      EXPECT_LT(counts.beyond, 5'000) << constraint.text << ", slices from " << first;
    }
  }
}

TEST_F(MatcherSlices, EndAtTheSameBound) {
  const Constraint constraint = gbnf_of(multiplying());
  const CompiledGrammar whole = fresh(constraint), sliced = fresh(constraint);
  GrammarMatcher one(whole), two(sliced, false);
  SliceCounts counts;
  int tokens = 0;
  bool accepted = true;
  std::vector<uint64_t> a(one.words()), b(two.words());
  for (; accepted && tokens < 5000; ++tokens) {
    const size_t allowed = one.mask(a);
    ASSERT_EQ(in_slices(two, 50'000, counts, [&] { return two.mask(b); }), allowed) << tokens;
    ASSERT_EQ(one.exceeded(), two.exceeded()) << tokens;
    accepted = one.accept('a');
    ASSERT_EQ(in_slices(two, 50'000, counts, [&] { return two.accept('a'); }), accepted) << tokens;
    ASSERT_EQ(one.exceeded(), two.exceeded()) << tokens;
  }
  EXPECT_NE(one.exceeded(), ParseBound::none);
  EXPECT_GT(tokens, 3);
  EXPECT_GT(counts.pauses, 10);
  EXPECT_LT(counts.beyond, 50'000) << "of 200,000,000 that the stream may do";
}

TEST_F(MatcherSlices, RebuildTheTableInTheSameWay) {
  const Constraint constraint = gbnf_of(kOverlap);
  const SliceCounts counts = compare_slices(fresh(constraint, 128 << 10), fresh(constraint, 128 << 10), 500, 60);
  EXPECT_GT(counts.pauses, 100);
}

// A copy computes its mask from the beginning.
TEST_F(MatcherSlices, ACopyOfAPausedMaskIsIndependent) {
  const CompiledGrammar compiled = fresh(gbnf_of(kNested));
  GrammarMatcher matcher(compiled), reference(compiled);
  std::vector<uint64_t> bits(matcher.words()), copied(matcher.words()), expected(matcher.words());
  matcher.set_slice(2000);
  matcher.mask(bits);
  ASSERT_TRUE(matcher.paused());
  GrammarMatcher copy = matcher;
  copy.set_slice(INT64_MAX);
  const size_t allowed = reference.mask(expected);
  EXPECT_EQ(copy.mask(copied), allowed);
  EXPECT_EQ(copied, expected);
  matcher.set_slice(INT64_MAX);
  EXPECT_EQ(matcher.mask(bits), allowed);
  EXPECT_EQ(bits, expected);
}

// After a pause another call may come: the mask then begins again.
TEST_F(MatcherSlices, APausedMaskMayBeGivenUp) {
  const CompiledGrammar compiled = fresh(gbnf_of(kNested));
  GrammarMatcher matcher(compiled), reference(compiled);
  std::vector<uint64_t> bits(matcher.words()), expected(matcher.words());
  matcher.set_slice(2000);
  matcher.mask(bits);
  ASSERT_TRUE(matcher.paused());
  matcher.set_slice(INT64_MAX);
  ASSERT_TRUE(matcher.accept_text("ab"));
  ASSERT_TRUE(reference.accept_text("ab"));
  EXPECT_EQ(matcher.mask(bits), reference.mask(expected));
  EXPECT_EQ(bits, expected);
}

}  // namespace
}  // namespace millrace
