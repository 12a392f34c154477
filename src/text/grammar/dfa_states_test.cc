// How many states and classes the automaton of an expression has, and the limit on them.
#include <gtest/gtest.h>

#include "text/grammar/dfa.h"

namespace millrace {
namespace {

using MakeExpr = ExprId (*)(GrammarSpec&);

Result<Dfa> dfa_of(MakeExpr make, const GrammarLimits& limits = {}) {
  GrammarSpec spec;
  spec.add_rule("rule");
  spec.add_rule("other");
  const ExprId expr = make(spec);
  return make_dfa(spec, expr, limits, "rule 'x'");
}

struct Sized {
  const char* name;
  MakeExpr make;
  int32_t states, classes;
};

const Sized kSized[] = {
    {"never", [](GrammarSpec& s) { return s.never(); }, 1, 1},
    {"the empty text", [](GrammarSpec& s) { return s.bytes(""); }, 1, 1},
    {"a text", [](GrammarSpec& s) { return s.bytes("bdf"); }, 4, 7},
    {"neighbours", [](GrammarSpec& s) { return s.bytes("abc"); }, 4, 5},
    {"the first byte", [](GrammarSpec& s) { return s.byte_set(std::string(1, '\0')); }, 2, 2},
    {"the last byte", [](GrammarSpec& s) { return s.byte_set("\xFF"); }, 2, 2},
    {"a common beginning",
     [](GrammarSpec& s) {
       return s.choice({s.bytes("ab"), s.bytes("ac")});
     },
     3, 5},
    {"an end in the middle",
     [](GrammarSpec& s) {
       return s.choice({s.bytes("a"), s.bytes("ab")});
     },
     3, 4},
    {"a loop", [](GrammarSpec& s) { return s.repeat(s.bytes("a"), 0, kNoLimit); }, 2, 3},
    {"a call", [](GrammarSpec& s) { return s.call(0); }, 2, 1},
    {"calls of two rules",
     [](GrammarSpec& s) {
       return s.choice({s.call(0), s.call(1)});
     },
     2, 1},
    {"the same call twice",
     [](GrammarSpec& s) {
       return s.choice({s.call(0), s.call(0)});
     },
     2, 1},
    {"markers",
     [](GrammarSpec& s) {
       return s.sequence({s.begin(), s.bytes("a"), s.end()});
     },
     2, 3},
};

TEST(DfaStates, OfPlainExpressions) {
  for (const Sized& one : kSized) {
    const auto dfa = dfa_of(one.make);
    ASSERT_TRUE(dfa.ok()) << one.name;
    EXPECT_EQ(dfa->size(), one.states) << one.name;
    EXPECT_EQ(dfa->classes, one.classes) << one.name;
    GrammarLimits limits;
    limits.dfa_states = one.states;
    EXPECT_TRUE(dfa_of(one.make, limits).ok()) << one.name;
    if (one.states == 1) continue;
    limits.dfa_states = one.states - 1;
    const auto refused = dfa_of(one.make, limits);
    ASSERT_FALSE(refused.ok()) << one.name;
    EXPECT_EQ(refused.error().message, "rule 'x': too large, its automaton has more than " +
                                           std::to_string(one.states - 1) + " states; simplify it");
    EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  }
}

// Only the best copy of a repeated part is kept, so that the number of states grows with the number of copies alone.
TEST(DfaStates, OfRepetitionsWithSeveralWays) {
  for (const uint32_t n : {2u, 5u, 20u, 100u}) {
    GrammarSpec spec;
    const ExprId either = spec.choice({spec.bytes("a"), spec.bytes("aa")});
    const auto upto = make_dfa(spec, spec.repeat(either, 0, n), {}, "x");
    ASSERT_TRUE(upto.ok());
    EXPECT_EQ(upto->size(), static_cast<int32_t>(2 * n + 1));
    const auto least = make_dfa(spec, spec.repeat(either, n, kNoLimit), {}, "x");
    ASSERT_TRUE(least.ok());
    for (size_t k = 0; k < 2 * n + 5; ++k) {
      EXPECT_EQ(upto->accepts(std::string(k, 'a')), k <= 2 * n) << n << " " << k;
      EXPECT_EQ(least->accepts(std::string(k, 'a')), k >= n) << n << " " << k;
    }
    EXPECT_EQ(least->size(), static_cast<int32_t>(n + 2));
    const ExprId words = spec.choice({spec.bytes("a"), spec.bytes("b"), spec.bytes("ab"), spec.bytes("ba")});
    EXPECT_EQ(make_dfa(spec, spec.repeat(words, 0, n), {}, "x")->size(), static_cast<int32_t>(4 * n));
    EXPECT_EQ(make_dfa(spec, spec.repeat(words, n, kNoLimit), {}, "x")->size(), static_cast<int32_t>(2 * n + 3));
    const ExprId some = spec.sequence({spec.repeat(spec.bytes("a"), 0, 3), spec.bytes("b")});
    EXPECT_EQ(make_dfa(spec, spec.repeat(some, 0, n), {}, "x")->size(), static_cast<int32_t>(4 * n + 1));
  }
}

// A copy that is worse at one level may be best at another; of repeated parts within repeated parts the best pair is
// kept, so that the states grow with the number of the outer copies alone.
TEST(DfaStates, OfRepetitionsWithinRepetitions) {
  for (const uint32_t n : {3u, 10u, 30u, 60u}) {
    GrammarSpec spec;
    const ExprId either = spec.choice({spec.bytes("a"), spec.bytes("aa")});
    const ExprId inner = spec.sequence({spec.repeat(either, 0, 4), spec.optional(spec.bytes("b"))});
    const auto upto = make_dfa(spec, spec.repeat(inner, 0, n), {}, "x");
    const auto least = make_dfa(spec, spec.repeat(spec.sequence({inner, spec.bytes("c")}), n, kNoLimit), {}, "x");
    ASSERT_TRUE(upto.ok() && least.ok());
    EXPECT_LE(upto->size(), static_cast<int32_t>(20 * n)) << n;
    EXPECT_LE(least->size(), static_cast<int32_t>(20 * n)) << n;
    for (size_t k = 0; k < 8 * n + 3; ++k) EXPECT_EQ(upto->accepts(std::string(k, 'a')), k <= 8 * n) << k;
    for (size_t k = 0; k < n + 4; ++k) EXPECT_EQ(least->accepts(std::string(k, 'c')), k >= n) << k;
  }
}

TEST(DfaStates, TheFirstStateIsNeverShared) {
  GrammarSpec spec;  // ^ matches only before the first byte
  const ExprId body = spec.repeat(spec.sequence({spec.optional(spec.begin()), spec.bytes("a")}), 0, kNoLimit);
  const auto dfa = make_dfa(spec, body, {}, "x");
  ASSERT_TRUE(dfa.ok());
  for (const int32_t to : dfa->next) EXPECT_NE(to, 0);
  const ExprId only_first = spec.repeat(spec.sequence({spec.begin(), spec.bytes("a")}), 0, kNoLimit);
  const auto one = make_dfa(spec, only_first, {}, "x");
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(one->accepts("") && one->accepts("a"));
  EXPECT_FALSE(one->accepts("aa"));
}

TEST(DfaStates, CallsAndBytesAreCounted) {
  CompileBudget budget;
  GrammarLimits limits;
  limits.budget = &budget;
  GrammarSpec spec;
  for (int r = 0; r < 5; ++r) spec.add_rule("r");
  const ExprId body =
      spec.sequence({spec.choice({spec.call(0), spec.call(1), spec.call(2, 1, 4), spec.call(2, 1, 5), spec.bytes("x")}),
                     spec.bytes("abc"), spec.choice({spec.call(3), spec.call(4)})});
  const auto dfa = make_dfa(spec, body, limits, "x");
  ASSERT_TRUE(dfa.ok());
  EXPECT_EQ(dfa->calls[0].size(), 4u);
  size_t calls = 0;
  for (const auto& list : dfa->calls) calls += list.capacity() * sizeof(Dfa::Call);
  EXPECT_EQ(dfa->call_bytes, static_cast<int64_t>(calls));
  EXPECT_EQ(dfa->bytes(), static_cast<int64_t>(calls + dfa->next.capacity() * 4 + dfa->accepting.capacity() +
                                               dfa->ticks.capacity() + dfa->calls.capacity() * sizeof(dfa->calls[0])));
  EXPECT_EQ(budget.held_bytes(), dfa->bytes());
}

}  // namespace
}  // namespace millrace
