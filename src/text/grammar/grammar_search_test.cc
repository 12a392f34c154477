// The search for dead states and impossible calls: bounded calls of rules whose numbers of ticks have gaps at first,
// what the search charges, and what a grammar takes.
#include <gtest/gtest.h>

#include "text/grammar/parse_table.h"

namespace millrace {
namespace {

struct SearchRules {
  GrammarSpec spec;
  RuleId rule(ExprId body) {
    const RuleId id = spec.add_rule("r" + std::to_string(spec.rules().size()));
    spec.set_body(id, body);
    return id;
  }
  ExprId ticks(int n) { return spec.repeat(spec.sequence({spec.bytes("."), spec.tick()}), n, n); }
  Result<Grammar> grammar(RuleId root, CompileBudget* budget = nullptr) {
    spec.root = root;
    GrammarLimits limits;
    limits.budget = budget;
    return Grammar::create(spec, limits);
  }
};

// The bytes that may be first.
std::string first_bytes(Result<Grammar> grammar) {
  if (!grammar.ok()) return grammar.error().message;
  ParseTable table(std::make_shared<const Grammar>(std::move(grammar).value()));
  std::string out;
  for (int c = 0; c < 128; ++c)
    if (table.step(table.begin(), static_cast<uint8_t>(c)) != kDead) out += static_cast<char>(c);
  return out;
}

// A rule of 0 or 3 ticks. 1 and 2 follow once it is known that the bounded call of another rule is possible.
RuleId gap_that_closes(SearchRules& rules) {
  const RuleId one = rules.rule(rules.spec.sequence({rules.ticks(1), rules.spec.bytes("x")}));
  std::vector<ExprId> ways;
  for (const int n : {0, 3}) ways.push_back(rules.spec.sequence({rules.ticks(n), rules.spec.bytes("]")}));
  for (const int n : {1, 2})
    ways.push_back(rules.spec.sequence(
        {rules.spec.bytes("b"), rules.spec.call(one, 1, 1), rules.ticks(n), rules.spec.bytes("]")}));
  return rules.rule(rules.spec.choice(ways));
}

TEST(GrammarSearch, GapsThatCloseLater) {
  struct {
    uint32_t need, room;
    bool possible;
  } const table[] = {{0, 0, true},  {1, 1, true},  {1, 2, true},        {2, 2, true},         {3, 3, true},
                     {0, 9, true},  {2, 9, true},  {0, kNoLimit, true}, {1, kNoLimit, true},  {3, kNoLimit, true},
                     {4, 4, false}, {4, 9, false}, {5, 6, false},       {4, kNoLimit, false}, {2, 1, false}};
  for (const auto& [need, room, possible] : table) {
    SearchRules rules;
    const RuleId list = gap_that_closes(rules);
    const RuleId root = rules.rule(rules.spec.choice(
        {rules.spec.bytes("r"), rules.spec.sequence({rules.spec.bytes("q"), rules.spec.call(list, need, room)})}));
    EXPECT_EQ(first_bytes(rules.grammar(root)), possible ? "qr" : "r") << need << " to " << room;
  }
}

// A call between two states that both reach the end anyway adds a tick once its rule can end.
TEST(GrammarSearch, ACallThatFollowsLaterAddsItsTicks) {
  SearchRules rules;
  const RuleId one = rules.rule(rules.spec.sequence({rules.ticks(1), rules.spec.bytes("x")}));
  const RuleId later = rules.rule(rules.spec.sequence({rules.spec.call(one, 1, 1), rules.spec.bytes("z")}));
  const RuleId list = rules.rule(rules.spec.sequence(
      {rules.spec.bytes("b"),
       rules.spec.choice({rules.spec.bytes("]"),
                          rules.spec.sequence({rules.spec.call(later), rules.ticks(1), rules.spec.bytes("]")})})}));
  for (const uint32_t need : {0u, 1u, 2u}) {
    const RuleId root = rules.rule(rules.spec.choice(
        {rules.spec.bytes("r"), rules.spec.sequence({rules.spec.bytes("q"), rules.spec.call(list, need, need)})}));
    EXPECT_EQ(first_bytes(rules.grammar(root)), need < 2 ? "qr" : "r") << need;
  }
}

TEST(GrammarSearch, AWayThatNeedsAnImpossibleCallIsNone) {
  SearchRules rules;  // "b" calls a rule of one tick with two; so the numbers are 0 and 1
  const RuleId one = rules.rule(rules.spec.sequence({rules.ticks(1), rules.spec.bytes("x")}));
  const RuleId list =
      rules.rule(rules.spec.choice({rules.spec.bytes("]"), rules.spec.sequence({rules.ticks(1), rules.spec.bytes("]")}),
                                    rules.spec.sequence({rules.spec.bytes("b"), rules.spec.call(one, 2, 2),
                                                         rules.ticks(2), rules.spec.bytes("]")})}));
  const auto possible = [&](uint32_t need, uint32_t room) {
    return first_bytes(rules.grammar(rules.rule(rules.spec.call(list, need, room))));
  };
  EXPECT_EQ(possible(0, 0), "]");
  EXPECT_EQ(possible(1, 1), ".");
  EXPECT_EQ(possible(0, 5), ".]");
  EXPECT_EQ(possible(2, 5), "grammar: no text satisfies it");
}

// Rules that call each other, the last one first, so that each round of the search finds one more.
TEST(GrammarSearch, ALongChainOfBoundedCalls) {
  constexpr int kRules = 40;
  for (const uint32_t last : {1u, 2u}) {
    SearchRules rules;
    RuleId at = rules.rule(rules.spec.sequence({rules.ticks(1), rules.spec.bytes("x")}));
    for (int i = 0; i < kRules; ++i)
      at = rules.rule(rules.spec.sequence(
          {rules.ticks(1), rules.spec.call(at, i == kRules / 2 ? last : 1, 2), rules.spec.bytes("y")}));
    const RuleId root = rules.rule(rules.spec.call(at, 1, 1));
    auto grammar = rules.grammar(root);
    ASSERT_EQ(grammar.ok(), last == 1);
    if (last == 2) continue;
    ParseTable table(std::make_shared<const Grammar>(std::move(grammar).value()));
    SetId set = table.begin();
    for (const char c : std::string(kRules + 1, '.') + "x" + std::string(kRules, 'y'))
      set = table.step(set, static_cast<uint8_t>(c));
    EXPECT_NE(set, kDead);
    EXPECT_TRUE(table.complete(set));
  }
}

TEST(GrammarSearch, ABoundedCallIsEmptyOnlyIfItNeedsNothing) {
  SearchRules rules;
  const RuleId any =
      rules.rule(rules.spec.repeat(rules.spec.sequence({rules.spec.bytes("."), rules.spec.tick()}), 0, 0));
  const auto nullable = [&](uint32_t need, uint32_t room) {
    const RuleId outer = rules.rule(rules.spec.choice({rules.spec.bytes("o"), rules.spec.call(any, need, room)}));
    const auto grammar =
        rules.grammar(rules.rule(rules.spec.sequence({rules.spec.call(outer), rules.spec.bytes("!")})));
    EXPECT_TRUE(grammar.ok());
    return grammar->calls(grammar->start())[0].nullable;
  };
  EXPECT_TRUE(nullable(0, kNoLimit));
  EXPECT_TRUE(nullable(0, 3));
  EXPECT_FALSE(nullable(1, 3)) << "the rule has no tick";
}

// Many rules with many calls each, so that the search holds more than the automaton of any rule.
int64_t peak_of_search(int rules_with_calls, int calls, bool bounded) {
  SearchRules rules;
  const RuleId items = rules.rule(rules.spec.sequence(
      {rules.spec.repeat(rules.spec.sequence({rules.spec.bytes("."), rules.spec.tick()}), 0, kNoLimit),
       rules.spec.bytes("]")}));
  std::vector<ExprId> ways;
  for (int r = 0; r < rules_with_calls; ++r) {
    std::vector<ExprId> parts;
    for (int c = 0; c < calls; ++c) parts.push_back(bounded ? rules.spec.call(items, 0, 5) : rules.spec.call(items));
    ways.push_back(rules.spec.call(rules.rule(rules.spec.sequence(parts))));
  }
  CompileBudget budget;
  EXPECT_TRUE(rules.grammar(rules.rule(rules.spec.choice(ways)), &budget).ok());
  EXPECT_EQ(budget.held_bytes(), 0);
  return budget.peak_bytes();
}

TEST(GrammarSearch, ChargesForEachBoundedCall) {
  constexpr int kRules = 64, kCalls = 64;
  const int64_t plain = peak_of_search(kRules, kCalls, false), bounded = peak_of_search(kRules, kCalls, true);
  const auto entry = static_cast<int64_t>(2 * sizeof(int32_t) + sizeof(Dfa::Call) + 4);  // its ends, the call, a flag
  EXPECT_GE(bounded - plain, kRules * kCalls * entry);
  EXPECT_LE(bounded - plain, kRules * kCalls * (entry + 16));
}

// With so many more calls the lists of steps and calls grow by that much.
TEST(GrammarSearch, ChargesForEachCallAndState) {
  const int64_t once = peak_of_search(64, 64, false), twice = peak_of_search(64, 128, false);
  constexpr int64_t kMore = 64 * 64;
  const auto step = static_cast<int64_t>(2 * sizeof(int32_t)), site = step + 4;
  EXPECT_GE(twice - once, kMore * (step + site + 16));
}

size_t grammar_bytes(int used, int unused) {
  SearchRules rules;
  std::vector<ExprId> ways;
  for (int i = 0; i < unused; ++i) rules.rule(rules.spec.bytes("no"));
  for (int i = 0; i < used; ++i) ways.push_back(rules.spec.call(rules.rule(rules.spec.bytes("yes"))));
  return rules.grammar(rules.rule(rules.spec.choice(ways))).value().bytes();
}

TEST(GrammarSearch, EachUnusedRuleTakesTheSame) {
  const size_t first = grammar_bytes(1, 1) - grammar_bytes(1, 0);
  EXPECT_GE(first, sizeof(Dfa));
  EXPECT_LE(first, sizeof(Dfa) + 100);
  for (int n = 1; n < 20; ++n) EXPECT_EQ(grammar_bytes(1, n + 1) - grammar_bytes(1, n), first) << n;
}

TEST(GrammarSearch, AGrammarTakesWhatItsTablesTake) {
  for (const int n : {1, 10, 100}) {
    SearchRules rules;
    const auto grammar = rules.grammar(rules.rule(rules.spec.bytes(std::string(static_cast<size_t>(n), 'a'))));
    ASSERT_TRUE(grammar.ok());
    const auto states = static_cast<size_t>(grammar->states());
    const size_t tables = states * (static_cast<size_t>(grammar->classes()) * 4 + 1 + 1 + 4 + 4) +
                          grammar->fingerprint(0).size() + sizeof(Dfa);
    EXPECT_GE(grammar->bytes(), tables);
    EXPECT_LE(grammar->bytes(), 2 * tables + 300);
  }
}

TEST(GrammarSearch, CountedRulesTakeTheirRangesToo) {
  const auto bytes = [](bool counted) {
    SearchRules rules;
    const ExprId letter = rules.spec.bytes(std::string(200, 'a'));
    const RuleId rule = rules.rule(rules.spec.sequence(
        {letter, counted ? rules.spec.tick() : rules.spec.bytes(""), rules.spec.bytes("."), rules.spec.bytes("!")}));
    return rules.grammar(rules.rule(rules.spec.call(rule))).value().bytes();
  };
  EXPECT_GE(bytes(true) - bytes(false), 200 * sizeof(TickRange));
  EXPECT_LE(bytes(true) - bytes(false), 210 * sizeof(TickRange));
}

}  // namespace
}  // namespace millrace
