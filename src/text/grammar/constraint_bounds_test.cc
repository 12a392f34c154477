// Sizes exactly at a bound and one past it: of choices, of the cache, of names and numbers in GBNF, of sets and keys.
#include <gtest/gtest.h>

#include "text/grammar/constraint.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/key_tree.h"

namespace millrace {
namespace {

TEST(ConstraintBounds, OfChoices) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::choice;
  constraint.choices = {"abc", "de"};
  GrammarLimits limits;
  limits.source_bytes = 5;
  EXPECT_TRUE(compile_constraint(constraint, limits).ok());
  limits.source_bytes = 4;
  const auto bytes = compile_constraint(constraint, limits);
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(bytes.error().message, "choice: more than 10000 texts or 4 bytes");
  constraint.choices.clear();
  for (int i = 0; i < 10'000; ++i) constraint.choices.push_back(std::to_string(10'000 + i));
  EXPECT_TRUE(compile_constraint(constraint).ok());
  constraint.choices.push_back("one more");
  const auto texts = compile_constraint(constraint);
  ASSERT_FALSE(texts.ok());
  EXPECT_EQ(texts.error().message, "choice: more than 10000 texts or 1048576 bytes");
}

TEST(ConstraintBounds, OfTriggersAndTexts) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::regex;
  constraint.text = "abcd";
  constraint.trigger = std::string(1024, 't');
  EXPECT_TRUE(compile_constraint(constraint).ok());
  constraint.trigger += 't';
  const auto trigger = compile_constraint(constraint);
  ASSERT_FALSE(trigger.ok());
  EXPECT_EQ(trigger.error().kind, ErrorKind::user);
  EXPECT_EQ(trigger.error().message, "constraint: the trigger is longer than 1024 bytes");
  constraint.trigger.clear();
  GrammarLimits limits;
  limits.source_bytes = 4;
  EXPECT_TRUE(compile_constraint(constraint, limits).ok());
  limits.source_bytes = 3;
  const auto text = compile_constraint(constraint, limits);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message, "constraint: longer than 3 bytes");
}

Constraint letter(char c) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::regex;
  constraint.text = c;
  return constraint;
}

GrammarCache::Pieces letter_pieces() {
  return [] { return std::vector<std::string>{"a", "b", "c"}; };
}

TEST(CacheBounds, AreReachedExactly) {
  size_t one = 0, two = 0;
  {
    GrammarCache cache(letter_pieces());
    ASSERT_TRUE(cache.get(letter('a')).ok());
    one = cache.bytes();
    ASSERT_TRUE(cache.get(letter('b')).ok());
    two = cache.bytes();
  }
  ASSERT_GT(two, one);
  for (const size_t short_of : {size_t{0}, size_t{1}}) {
    GrammarCache idle(letter_pieces(), {.grammar_bytes = two - short_of});
    ASSERT_TRUE(idle.get(letter('a')).ok());
    ASSERT_TRUE(idle.get(letter('b')).ok());
    EXPECT_EQ(idle.find(letter('a')).has_value(), short_of == 0);
    EXPECT_TRUE(idle.find(letter('b')));
    EXPECT_EQ(idle.bytes(), short_of == 0 ? two : two - one);

    GrammarCache used(letter_pieces(), {.used_bytes = two - short_of});
    ASSERT_TRUE(used.get(letter('a')).ok());
    ASSERT_TRUE(used.get(letter('b')).ok());
    EXPECT_EQ(used.find(letter('a')).has_value(), short_of == 0);
    EXPECT_TRUE(used.find(letter('b')));

    GrammarCache held(letter_pieces(), {.used_bytes = two - short_of});
    const auto first = held.get(letter('a'));
    EXPECT_EQ(held.get(letter('b')).ok(), short_of == 0);
  }
}

Result<void> parsed(const std::string& source, CompileBudget* budget = nullptr) {
  GrammarSpec spec(budget);
  return parse_gbnf(spec, source, {});
}

TEST(GbnfBounds, OfNames) {
  const std::string letters = "azbyAZBY0918-_";
  EXPECT_TRUE(parsed("root ::= " + letters + "\n" + letters + " ::= \"x\"").ok());
  for (const char c : letters) {
    const std::string name(1, c);
    EXPECT_TRUE(parsed("root ::= " + name + "\n" + name + " ::= \"x\"").ok()) << name;
  }
  for (const char c : std::string("`{@[/:.,;$%"))
    EXPECT_FALSE(parsed(std::string("root") + c + " ::= \"x\"").ok()) << c;
}

TEST(GbnfBounds, OfRepetitions) {
  for (const char* braces : {"{ 2 , 3 }", "{2,3}", "{2\n,\n3\n}", "{ 2 ,3}", "{2, 3 }", "{2 }", "{ 2}", "{ 2 , }",
                             "{2,}", "{2,  }", "{0,10000}"})
    EXPECT_TRUE(parsed(std::string("root ::= \"a\"") + braces).ok()) << braces;
  for (const char* number :
       {"10001", "4294967294", "4294967295", "4294967296", "99999999999", "18446744073709551616"}) {
    const auto upto = parsed(std::string("root ::= \"a\"{0,") + number + "}");
    ASSERT_FALSE(upto.ok()) << number;
    EXPECT_EQ(upto.error().message, "grammar: a repetition of more than 10000");
  }
}

TEST(GbnfBounds, OfItsBudget) {
  const auto bytes = static_cast<int64_t>(sizeof(Expr));
  CompileBudget two({.bytes = 3 * bytes + 100}), one({.bytes = 2 * bytes});
  EXPECT_TRUE(parsed("root ::= \"a\"?", &two).ok());
  EXPECT_TRUE(parsed("root ::= \"a\"", &one).ok());
  CompileBudget again({.bytes = 2 * bytes});
  const auto refused = parsed("root ::= \"a\"?", &again);
  ASSERT_FALSE(refused.ok()) << "the repetition is charged as soon as it is read";
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
}

TEST(CharSetBounds, ManyRangesWithOneBeginning) {
  CharSet ranges;
  for (uint32_t i = 0; i < 2000; ++i) ranges.push_back({kLastCodePoint - 5, kLastCodePoint - i % 6});
  const CharSet set = normalized(ranges);
  ASSERT_EQ(set.size(), 1u);
  EXPECT_EQ(set[0].first, kLastCodePoint - 5);
  EXPECT_EQ(set[0].last, kLastCodePoint);
}

TEST(KeyTreeBounds, ChargeForEdges) {
  std::vector<std::string> keys;
  for (char c = 'a'; c < 'a' + 25; ++c) keys.push_back(std::string(2000, '.') + c);
  CompileBudget budget;
  const auto tree = make_key_tree(keys, std::string(keys.size(), '?'), &budget);
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(budget.held_bytes(), 0);
  const auto edges = static_cast<double>(tree->edges.capacity() * sizeof(KeyTree::Edge));
  EXPECT_GE(static_cast<double>(budget.peak_bytes()), 1.5 * edges) << "a growing list holds its old half as well";
  EXPECT_LE(static_cast<double>(budget.peak_bytes()), 1.75 * edges);
}

}  // namespace
}  // namespace millrace
