// When nested repetitions become one, which calls are inlined, and what a GrammarSpec charges.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "text/grammar/expr.h"

namespace millrace {
namespace {

using Bounds = std::pair<uint32_t, uint32_t>;
constexpr uint32_t kFarEnough = 60;  // above it, an open range has all numbers and a bounded one has none

// The numbers of x that (x{a,b}){c,d} writes, as far as kFarEnough.
std::set<uint32_t> numbers_of(Bounds inner, Bounds outer) {
  const auto last = [](uint32_t max) { return std::min(max, kFarEnough); };
  std::set<uint32_t> out, now{0};
  for (uint32_t k = 0; k <= last(outer.second); ++k) {
    if (k >= outer.first) out.insert(now.begin(), now.end());
    std::set<uint32_t> next;
    for (const uint32_t n : now)
      for (uint32_t more = inner.first; more <= last(inner.second) && n + more <= kFarEnough; ++more)
        next.insert(n + more);
    now = std::move(next);
  }
  return out;
}

TEST(Repeat, NestedOnesMergeExactlyIfTheirNumbersHaveNoGap) {
  std::vector<Bounds> all;
  for (uint32_t min = 0; min <= 4; ++min) {
    for (uint32_t max = min; max <= 5; ++max) all.emplace_back(min, max);
    all.emplace_back(min, kNoLimit);
  }
  int merged = 0, kept = 0;
  for (const Bounds& inner : all) {
    for (const Bounds& outer : all) {
      GrammarSpec spec;
      const ExprId x = spec.bytes("x");
      const ExprId one = spec.repeat(x, inner.first, inner.second);
      const Expr& expr = spec.at(spec.repeat(one, outer.first, outer.second));
      const std::string what = ::testing::PrintToString(inner) + ::testing::PrintToString(outer);
      ASSERT_EQ(expr.kind, Expr::Kind::repeat);
      const std::set<uint32_t> numbers = numbers_of(inner, outer);
      ASSERT_FALSE(numbers.empty());
      const uint32_t least = *numbers.begin(), most = *numbers.rbegin();
      const bool whole = numbers.size() == most - least + 1;
      ++(whole ? merged : kept);
      ASSERT_EQ(expr.parts[0], whole ? x : one) << what;
      ASSERT_EQ(expr.min, whole ? least : outer.first) << what;
      ASSERT_EQ(expr.max, !whole ? outer.second : most == kFarEnough ? kNoLimit : most) << what;
    }
  }
  EXPECT_GT(merged, 300);
  EXPECT_GT(kept, 100);
}

TEST(Repeat, NestedOnesDoNotMergeBeyondTheNumbersThereAre) {
  const auto merges = [](Bounds inner, Bounds outer) {
    GrammarSpec spec;
    const ExprId x = spec.bytes("x");
    return spec.at(spec.repeat(spec.repeat(x, inner.first, inner.second), outer.first, outer.second)).parts[0] == x;
  };
  EXPECT_TRUE(merges({65535, 65535}, {65536, 65536}));
  EXPECT_FALSE(merges({65535, 65535}, {65537, 65537})) << "kNoLimit has a meaning of its own";
  EXPECT_FALSE(merges({65536, 65536}, {65536, 65536}));
  EXPECT_FALSE(merges({0, 65535}, {0, 65537}));
  EXPECT_TRUE(merges({0, 65535}, {0, 65536}));
  EXPECT_FALSE(merges({65536, kNoLimit}, {65536, 65536}));
  EXPECT_TRUE(merges({65536, kNoLimit}, {65535, 65535}));
  GrammarSpec spec;
  const ExprId text = spec.bytes("x"), two = spec.sequence({text, text});
  EXPECT_EQ(spec.at(spec.repeat(two, 2, 3)).parts[0], two) << "only repetitions merge";
}

TEST(Forms, OfOnePartAreThatPart) {
  GrammarSpec spec;
  const ExprId text = spec.bytes("x");
  EXPECT_EQ(spec.sequence({text}), text);
  EXPECT_EQ(spec.choice({text}), text);
  EXPECT_EQ(spec.at(spec.choice({})).kind, Expr::Kind::never);
  EXPECT_EQ(spec.at(spec.choice({text, text})).kind, Expr::Kind::choice);
  EXPECT_EQ(spec.at(spec.sequence({})).kind, Expr::Kind::sequence);
  const Expr list = spec.at(spec.list(text, {text, text}, "1?", true));
  EXPECT_EQ(list.parts.size(), 3u);
  EXPECT_EQ(list.min, 1u);
  const Expr keyed = spec.at(spec.keyed({text, text, {{"a", text, true}, {"b", text, false}}, -1, false}));
  EXPECT_EQ(keyed.parts.size(), 4u);
  EXPECT_EQ(keyed.text, "1?");
  EXPECT_EQ(keyed.min, 0u);
  EXPECT_EQ(spec.at(spec.keyed({text, text, {{"a", text, true}}, 0, true})).parts.size(), 4u)
      << "others may be the first expression";
}

// Whether a call of the rule is replaced by its body.
bool inlines(const std::function<ExprId(GrammarSpec&, RuleId)>& body, uint32_t need = 0, uint32_t room = kNoLimit) {
  GrammarSpec spec;
  const RuleId rule = spec.add_rule("rule");
  const ExprId inside = body(spec, rule);
  spec.set_body(rule, inside);
  const ExprId call = spec.call(rule, need, room);
  spec.inline_rules();
  const Expr& expr = spec.at(call);
  if (expr.kind == Expr::Kind::call) {
    EXPECT_EQ(expr.rule, rule);
    EXPECT_EQ(expr.need, need);
    EXPECT_EQ(expr.room, room);
    return false;
  }
  EXPECT_EQ(expr.kind, Expr::Kind::sequence);
  EXPECT_EQ(expr.parts, std::vector<ExprId>{inside});
  return true;
}

TEST(InlineRules, ReplacesPlainCallsOfSmallRules) {
  const auto text = [](size_t size) {
    return [size](GrammarSpec& spec, RuleId) { return spec.bytes(std::string(size, 'a')); };
  };
  EXPECT_TRUE(inlines(text(1)));
  EXPECT_FALSE(inlines(text(1), 1));
  EXPECT_FALSE(inlines(text(1), 0, 5));
  EXPECT_FALSE(inlines(text(1), 1, 5));
  EXPECT_TRUE(inlines(text(2999))) << "3000 leaves";
  EXPECT_FALSE(inlines(text(3000)));
  const auto repeated = [](uint32_t min, uint32_t max) {
    return [=](GrammarSpec& spec, RuleId) { return spec.repeat(spec.bytes("aa"), min, max); };  // 4 leaves
  };
  EXPECT_TRUE(inlines(repeated(0, 750)));
  EXPECT_FALSE(inlines(repeated(0, 751)));
  EXPECT_TRUE(inlines(repeated(749, kNoLimit)));
  EXPECT_FALSE(inlines(repeated(750, kNoLimit)));
  const auto set = [](size_t ranges) {
    return [ranges](GrammarSpec& spec, RuleId) {
      CharSet chars;
      for (uint32_t i = 0; i < ranges; ++i) chars.push_back({2 * i, 2 * i});
      return spec.chars(chars, Spelling::utf8);
    };
  };
  EXPECT_TRUE(inlines(set(999)));
  EXPECT_FALSE(inlines(set(1000)));
  EXPECT_FALSE(inlines([](GrammarSpec& spec, RuleId self) {
    return spec.choice({spec.bytes("a"), spec.sequence({spec.bytes("b"), spec.call(self)})});
  })) << "it calls itself";
}

TEST(InlineRules, LeavesRulesThatAreNestedTooDeeply) {
  const auto deep = [](int levels) {
    return [levels](GrammarSpec& spec, RuleId) {
      ExprId at = spec.bytes("a");
      for (int i = 0; i < levels; ++i) at = spec.sequence({at, spec.bytes("")});
      return at;
    };
  };
  EXPECT_TRUE(inlines(deep(499)));
  EXPECT_FALSE(inlines(deep(500)));
  EXPECT_FALSE(inlines(deep(1000)));
}

TEST(SpecBudget, IsChargedForListsAndTexts) {
  CompileBudget budget;
  GrammarSpec spec(&budget);
  EXPECT_EQ(budget.held_bytes(), 0);
  constexpr auto kEach = static_cast<int64_t>(sizeof(Expr));
  const auto none = static_cast<int64_t>(std::string().capacity());
  for (int i = 0; i < 64; ++i) spec.never();
  EXPECT_EQ(budget.held_bytes(), 64 * kEach * 3 / 2 + 64 * none) << "a growing list holds its old half as well";
  spec.never();
  const int64_t grown = 128 * kEach * 3 / 2 + 65 * none;
  EXPECT_EQ(budget.held_bytes(), grown);
  spec.bytes(std::string(1000, 'a'));
  EXPECT_GE(budget.held_bytes(), grown + 1000);
  EXPECT_LE(budget.held_bytes(), grown + 1040);
  const int64_t before = budget.held_bytes();
  spec.chars(CharSet(50, CharRange{1, 1}), Spelling::utf8);
  const int64_t after = budget.held_bytes();
  EXPECT_GE(after - before, static_cast<int64_t>(50 * sizeof(CharRange)));
  spec.sequence(std::vector<ExprId>(100, 0));
  EXPECT_GE(budget.held_bytes() - after, static_cast<int64_t>(100 * sizeof(ExprId)));
  const int64_t listed = budget.held_bytes();
  spec.keyed({0, 0, {{std::string(500, 'k'), 0, true}}, -1, false});
  EXPECT_GE(budget.held_bytes() - listed, static_cast<int64_t>(500 + sizeof(std::string)));
}

}  // namespace
}  // namespace millrace
