// The sets of a ParseTable: which parses they keep, how many there may be, how deep, and what a copy of them costs.
#include <gtest/gtest.h>

#include "text/grammar/parse_table.h"

namespace millrace {
namespace {

struct TableRules {
  GrammarSpec spec;
  RuleId rule(ExprId body) {
    const RuleId id = spec.add_rule("r" + std::to_string(spec.rules().size()));
    spec.set_body(id, body);
    return id;
  }
  ExprId then(RuleId rule, std::string_view text) { return spec.sequence({spec.call(rule), spec.bytes(text)}); }
  std::shared_ptr<const Grammar> grammar(RuleId root) {
    spec.root = root;
    auto made = Grammar::create(spec);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return std::make_shared<const Grammar>(std::move(made).value());
  }
};

SetId set_after(ParseTable& table, std::string_view text) {
  SetId set = table.begin();
  for (const char c : text) set = table.step(set, static_cast<uint8_t>(c));
  return set;
}

bool accepts_whole(ParseTable& table, std::string_view text) {
  const SetId set = set_after(table, text);
  return set != kDead && table.complete(set);
}

TEST(ParseSets, KeepOnlyParsesThatReadTheNextByte) {
  TableRules rules;
  const RuleId leaf = rules.rule(rules.spec.bytes("a"));
  const RuleId root = rules.rule(rules.then(leaf, "b"));
  ParseTable table(rules.grammar(root));
  EXPECT_EQ(table.configs(table.begin()).size(), 1u) << "the rule that is called";
  EXPECT_EQ(table.configs(set_after(table, "a")).size(), 1u) << "the rule that goes on";
  const SetId end = set_after(table, "ab");
  EXPECT_EQ(table.configs(end).size(), 1u);
  EXPECT_TRUE(table.complete(end));
  EXPECT_FALSE(table.can_continue(end));
  EXPECT_EQ(set_after(table, "abb"), kDead);
}

TEST(ParseSets, CallersOfOneRuleShareItsParse) {
  TableRules rules;  // after "xy" two parses call the same rule and go on to the same state
  const RuleId leaf = rules.rule(rules.spec.bytes("w"));
  const RuleId middle =
      rules.rule(rules.spec.sequence({rules.spec.bytes("y"), rules.spec.call(leaf), rules.spec.bytes("z")}));
  const RuleId one = rules.rule(rules.then(middle, "1")), two = rules.rule(rules.then(middle, "2"));
  const RuleId root = rules.rule(
      rules.spec.sequence({rules.spec.bytes("x"), rules.spec.choice({rules.spec.call(one), rules.spec.call(two)})}));
  ParseTable table(rules.grammar(root));
  EXPECT_EQ(table.configs(set_after(table, "x")).size(), 2u);
  const SetId shared = set_after(table, "xy");
  ASSERT_EQ(table.configs(shared).size(), 1u);
  EXPECT_EQ(table.parents(table.configs(shared)[0].frame).size(), 2u);
  EXPECT_EQ(table.configs(set_after(table, "xyw")).size(), 2u);
  EXPECT_TRUE(accepts_whole(table, "xywz1"));
  EXPECT_TRUE(accepts_whole(table, "xywz2"));
  EXPECT_FALSE(accepts_whole(table, "xywz"));
  EXPECT_FALSE(accepts_whole(table, "xywz3"));
}

TEST(ParseSets, CallsWithOtherBoundsAreOtherParses) {
  TableRules rules;
  const RuleId items = rules.rule(rules.spec.sequence(
      {rules.spec.repeat(rules.spec.sequence({rules.spec.bytes("a"), rules.spec.tick()}), 0, kNoLimit),
       rules.spec.bytes(".")}));
  const RuleId root = rules.rule(
      rules.spec.sequence({rules.spec.choice({rules.spec.call(items, 1, 2), rules.spec.call(items, 4, 5),
                                              rules.spec.call(items, 4, 4), rules.spec.call(items, 9, kNoLimit)}),
                           rules.spec.bytes("!")}));
  ParseTable table(rules.grammar(root));
  EXPECT_EQ(table.configs(table.begin()).size(), 4u);
  for (size_t n = 0; n < 14; ++n)
    EXPECT_EQ(accepts_whole(table, std::string(n, 'a') + ".!"), n == 1 || n == 2 || n == 4 || n == 5 || n >= 9) << n;
}

// Two callers of a rule with several ways to the same call: its parses are as many as its bounds, each with two
// parents.
TEST(ParseSets, CallersMeetInEachCall) {
  TableRules rules;
  GrammarSpec& s = rules.spec;
  const RuleId items =
      rules.rule(s.sequence({s.repeat(s.sequence({s.bytes("a"), s.tick()}), 0, kNoLimit), s.bytes(".")}));
  const RuleId maybe = rules.rule(s.optional(s.bytes("z")));
  const ExprId bounds = s.choice({s.call(items, 0, 1), s.call(items, 0, 2), s.call(items, 0, 3), s.call(items, 0, 4)});
  const RuleId middle = rules.rule(s.sequence({s.choice({s.sequence({s.call(maybe), bounds}), bounds}), s.bytes("!")}));
  const RuleId one = rules.rule(rules.then(middle, "1")), two = rules.rule(rules.then(middle, "2"));
  ParseTable table(rules.grammar(rules.rule(s.choice({s.call(one), s.call(two)}))));
  size_t of_items = 0;
  for (const ParseConfig& config : table.configs(table.begin())) {
    if (!table.grammar().counted(config.state)) continue;
    ++of_items;
    EXPECT_EQ(table.parents(config.frame).size(), 2u);
  }
  EXPECT_EQ(of_items, 4u);
  EXPECT_TRUE(accepts_whole(table, "aaaa.!1"));
  EXPECT_TRUE(accepts_whole(table, "z.!2"));
  EXPECT_FALSE(accepts_whole(table, "aaaaa.!1"));
}

// So many groups of so many calls each, which differ by their room; the last group calls the first one again.
std::shared_ptr<const Grammar> many_readings(uint32_t groups, uint32_t calls, uint32_t more, bool again) {
  TableRules rules;
  const RuleId items = rules.rule(rules.spec.sequence(
      {rules.spec.repeat(rules.spec.sequence({rules.spec.bytes("a"), rules.spec.tick()}), 0, kNoLimit),
       rules.spec.bytes(".")}));
  std::vector<ExprId> ways;
  RuleId first = -1;
  for (uint32_t g = 0; g < groups; ++g) {
    std::vector<ExprId> inside;
    const bool last = g + 1 == groups;
    for (uint32_t c = 0; c < calls + (last ? more : 0); ++c)
      inside.push_back(rules.spec.call(items, 0, 1 + g * calls + c));
    if (last && again) inside.push_back(rules.spec.call(first));
    const RuleId group = rules.rule(rules.spec.choice(std::move(inside)));
    if (first < 0) first = group;
    ways.push_back(rules.spec.call(group));
  }
  return rules.grammar(rules.rule(rules.spec.choice(std::move(ways))));
}

TEST(ParseSets, ReadingsAreLimited) {
  for (const bool again : {false, true}) {               // a reading found twice counts once
    ParseTable fits(many_readings(127, 128, 0, again));  // 1 + 127 + 127 * 128
    const SetId begin = fits.begin();
    EXPECT_EQ(fits.exceeded(), ParseBound::none) << again;
    EXPECT_EQ(fits.configs(begin).size(), 16256u);
    ParseTable full(many_readings(127, 128, 0, again));
    EXPECT_NE(full.begin(), kDead);
  }
  ParseTable all(many_readings(127, 127, 127, true));  // 1 + 127 + 127 * 127 + 127 = 16384
  EXPECT_NE(all.begin(), kDead);
  EXPECT_EQ(all.exceeded(), ParseBound::none);
  ParseTable above(many_readings(127, 127, 128, false));
  EXPECT_EQ(above.begin(), kDead);
  EXPECT_EQ(above.exceeded(), ParseBound::readings);
}

// A chain of so many calls before the first byte.
std::shared_ptr<const Grammar> chain(int calls) {
  TableRules rules;
  RuleId at = rules.rule(rules.spec.bytes("x"));
  for (int i = 0; i < calls; ++i) at = rules.rule(rules.then(at, "y"));
  return rules.grammar(at);
}

TEST(ParseSets, NestedCallsAreLimited) {
  ParseTable deepest(chain(1000));
  const SetId begin = deepest.begin();
  ASSERT_EQ(deepest.configs(begin).size(), 1u);
  EXPECT_EQ(deepest.frame(deepest.configs(begin)[0].frame).depth, 1000);
  EXPECT_FALSE(deepest.dropped());
  EXPECT_TRUE(accepts_whole(deepest, "x" + std::string(1000, 'y')));
  EXPECT_FALSE(accepts_whole(deepest, "x" + std::string(999, 'y')));
  ParseTable deeper(chain(1001));
  EXPECT_EQ(deeper.begin(), kDead);
  EXPECT_TRUE(deeper.dropped());
  EXPECT_EQ(deeper.exceeded(), ParseBound::none);
}

TEST(ParseSets, AreImportedWithTheirFrames) {
  TableRules rules;
  const RuleId leaf = rules.rule(rules.spec.choice({rules.spec.bytes("ab"), rules.spec.bytes("ac")}));
  const RuleId root =
      rules.rule(rules.spec.choice({rules.then(leaf, "1"), rules.then(leaf, "2"), rules.spec.bytes("axy")}));
  const auto grammar = rules.grammar(root);
  ParseTable from(grammar);
  const std::vector<std::string> texts = {"", "a", "ab", "ax", "axy", "ab1", "q"};
  std::vector<SetId> sets;
  for (const std::string& text : texts) sets.push_back(set_after(from, text));
  ParseTable to(grammar);
  to.import(from, sets);
  ASSERT_EQ(to.exceeded(), ParseBound::none);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(sets[i], set_after(to, texts[i])) << "'" << texts[i] << "' is the set that the table itself makes";
    EXPECT_EQ(to.complete(sets[i]), texts[i] == "axy" || texts[i] == "ab1");
  }
}

TEST(ParseSets, ACopyCostsWorkForEachParse) {
  const auto grammar = many_readings(50, 100, 0, false);
  ParseTable from(grammar);
  const SetId begin = from.begin();
  ASSERT_EQ(from.configs(begin).size(), 5000u);
  const auto cost = [&](std::vector<SetId> sets) {
    ParseTable to(grammar);
    to.set_work(100'000'000);
    to.import(from, sets);
    return 100'000'000 - to.work_left();
  };
  const int64_t once = cost({begin}), twice = cost({begin, begin});
  EXPECT_GE(twice - once, 5000 * 8) << "the frames are there already";
  EXPECT_LE(twice - once, 5000 * 16);
  ParseTable poor(grammar);
  poor.set_work(once - 1);
  std::vector<SetId> sets{begin};
  poor.import(from, sets);
  EXPECT_EQ(sets[0], kDead);
  EXPECT_EQ(poor.exceeded(), ParseBound::work);
  ParseTable exact(grammar);
  exact.set_work(once);
  sets = {begin};
  exact.import(from, sets);
  EXPECT_NE(sets[0], kDead);
}

}  // namespace
}  // namespace millrace
