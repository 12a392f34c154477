// What a Grammar keeps of its rules: states, byte classes, fingerprints and flags; the limits on them.
#include <gtest/gtest.h>

#include "text/grammar/grammar.h"
#include "text/grammar/parse_table.h"
#include "text/grammar/wide_dfa_test.h"

namespace millrace {
namespace {

struct RuleTexts {
  GrammarSpec spec;
  RuleId rule(const char* name, ExprId body) {
    const RuleId id = spec.add_rule(name);
    spec.set_body(id, body);
    return id;
  }
  Result<Grammar> grammar(RuleId root, const GrammarLimits& limits = {}) {
    spec.root = root;
    return Grammar::create(spec, limits);
  }
};

TEST(GrammarTables, RulesThatAreNotUsedTakeNoStatesAndNoClasses) {
  RuleTexts rules;
  rules.rule("unused", rules.spec.bytes("xyz"));
  const RuleId used = rules.rule("used", rules.spec.bytes("b"));
  rules.rule("unused too", rules.spec.call(used));
  const RuleId root = rules.rule("root", rules.spec.sequence({rules.spec.bytes("b"), rules.spec.call(used)}));
  const auto grammar = rules.grammar(root);
  ASSERT_TRUE(grammar.ok());
  EXPECT_EQ(grammar->states(), 5);
  EXPECT_EQ(grammar->classes(), 3) << "below b, b, and above";
  EXPECT_EQ(grammar->start(), 2);
  EXPECT_FALSE(grammar->single(0));
  EXPECT_TRUE(grammar->single(1));
  EXPECT_FALSE(grammar->single(2));
  EXPECT_EQ(grammar->sample(0), 0);
  EXPECT_EQ(grammar->sample(1), 'b');
  EXPECT_EQ(grammar->sample(2), 'c');
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(grammar->class_of(static_cast<uint8_t>(byte)), byte < 'b' ? 0 : byte == 'b' ? 1 : 2) << byte;
}

TEST(GrammarTables, FlagsOfStates) {
  RuleTexts rules;
  const RuleId item = rules.rule("item", rules.spec.sequence({rules.spec.bytes("i"), rules.spec.tick()}));
  const RuleId root = rules.rule("root", rules.spec.sequence({rules.spec.bytes("r"), rules.spec.call(item),
                                                              rules.spec.optional(rules.spec.bytes("s"))}));
  const auto grammar = rules.grammar(root);
  ASSERT_TRUE(grammar.ok());
  ASSERT_EQ(grammar->states(), 6);  // item: 0 -i-> 1; root: 2 -r-> 3 -item-> 4 -s-> 5
  const auto flags = [&](int32_t s) {
    return std::string(grammar->accepting(s) ? "a" : "") + (grammar->ticks(s) ? "t" : "") +
           (grammar->ends(s) ? "e" : "") + (grammar->moves(s) ? "m" : "") + (grammar->counted(s) ? "c" : "");
  };
  const char* expected[] = {"mc", "atec", "m", "", "am", "ae"};
  for (int32_t s = 0; s < 6; ++s) EXPECT_EQ(flags(s), expected[s]) << s;
  ASSERT_EQ(grammar->calls(3).size(), 1u);
  EXPECT_EQ(grammar->calls(3)[0].start, 0);
  EXPECT_EQ(grammar->calls(3)[0].to, 4);
  EXPECT_TRUE(grammar->calls(3)[0].counts);
  EXPECT_FALSE(grammar->calls(3)[0].nullable);
  EXPECT_EQ(grammar->ticks_left(0), (TickRange{1, 1}));
  EXPECT_EQ(grammar->ticks_left(1), (TickRange{0, 0}));
  EXPECT_EQ(grammar->ticks_left(2), (TickRange{0, 0}));
  EXPECT_EQ(grammar->state_in_rule(5), 3);
  for (int32_t s : {0, 1, 2, 4, 5}) EXPECT_TRUE(grammar->calls(s).empty()) << s;
}

TEST(GrammarTables, FingerprintsTellRulesApart) {
  RuleTexts rules;
  GrammarSpec& s = rules.spec;
  const std::vector<ExprId> bodies = {
      s.bytes("ab"),
      s.bytes("ab"),                                         // the same as the one before
      s.bytes("ac"),                                         // other bytes
      s.sequence({s.bytes("ab"), s.tick()}),                 // it ticks at its end
      s.sequence({s.bytes("a"), s.tick(), s.bytes("b")}),    // and in the middle
      s.sequence({s.bytes("a"), s.optional(s.bytes("b"))}),  // other ends
      s.sequence({s.bytes("a"), s.repeat(s.bytes("b"), 1, 2)}),
  };
  std::vector<ExprId> ways;
  for (const ExprId body : bodies) ways.push_back(s.call(rules.rule("r", body)));
  ways.push_back(s.call(rules.rule("largest", s.bytes(std::string(511, 'a')))));
  ways.push_back(s.call(rules.rule("larger", s.bytes(std::string(512, 'a')))));
  const RuleId root = rules.rule("root", s.choice(ways));
  const auto grammar = rules.grammar(root);
  ASSERT_TRUE(grammar.ok());
  std::vector<std::string> prints;
  for (const Grammar::Call& call : grammar->calls(grammar->start())) prints.push_back(grammar->fingerprint(call.start));
  ASSERT_EQ(prints.size(), 9u);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_FALSE(prints[i].empty()) << i;
    for (size_t j = 0; j < i; ++j) EXPECT_EQ(prints[i] == prints[j], i == 1 && j == 0) << i << " " << j;
  }
  EXPECT_FALSE(prints[7].empty()) << "512 states";
  EXPECT_TRUE(prints[8].empty()) << "513 states";
  EXPECT_TRUE(grammar->fingerprint(grammar->start()).empty()) << "it calls others";
}

TEST(GrammarTables, EveryByteMayLeadOn) {
  for (int byte = 0; byte < 256; ++byte) {
    RuleTexts rules;
    const RuleId root = rules.rule("root", rules.spec.byte_set(std::string(1, static_cast<char>(byte))));
    const auto grammar = rules.grammar(root);
    ASSERT_TRUE(grammar.ok()) << byte << ": " << grammar.error().message;
    for (int other = 0; other < 256; ++other)
      EXPECT_EQ(grammar->step(grammar->start(), static_cast<uint8_t>(other)), other == byte ? 1 : -1);
  }
}

TEST(GrammarTables, RulesAndStatesAreLimited) {
  RuleTexts rules;
  rules.rule("unused", rules.spec.bytes("xyz"));
  const RuleId root = rules.rule("root", rules.spec.bytes("ab"));
  GrammarLimits limits;
  limits.rules = 2;
  limits.total_states = 7;
  EXPECT_TRUE(rules.grammar(root, limits).ok());
  limits.total_states = 6;
  const auto states = rules.grammar(root, limits);
  ASSERT_FALSE(states.ok());
  EXPECT_EQ(states.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(states.error().message, "grammar: too large, its rules have more than 6 states; simplify it");
  limits.rules = 1;
  const auto many = rules.grammar(root, limits);
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(many.error().message, "grammar: more than 1 rules");
}

// Without the lists of steps and predecessors a wide grammar would take twice what it charges.
TEST(GrammarTables, TheSearchForDeadStatesIsCharged) {
  constexpr int32_t kStates = 32, kRules = 16;
  const Dfa wide = testing::wide_dfa(kStates, 0);
  const auto shared = std::make_shared<const Dfa>(wide);
  RuleTexts rules;
  std::vector<ExprId> ways;
  for (int32_t r = 0; r < kRules; ++r) ways.push_back(rules.spec.call(rules.rule("wide", rules.spec.dfa(shared))));
  const RuleId root = rules.rule("root", rules.spec.choice(ways));
  CompileBudget budget;
  GrammarLimits limits;
  limits.budget = &budget;
  const auto grammar = rules.grammar(root, limits);
  ASSERT_TRUE(grammar.ok());
  const int64_t steps = int64_t{kRules} * kStates * 256;
  EXPECT_GE(budget.peak_bytes(), steps * 4 + steps * 8) << "the automata, and a step back for each edge";
  EXPECT_LE(budget.peak_bytes(), steps * 18);
  EXPECT_EQ(budget.held_bytes(), 0) << "a grammar outlives its compilation";
}

}  // namespace
}  // namespace millrace
