// What parsing charges: 8 for each parse added, 16 for each call looked at, 64 and a quarter of the byte classes for
// each set, 64 and one for each parent for each frame. The same on every machine, so that every machine stops at the
// same token.
#include <gtest/gtest.h>

#include "text/grammar/parse_table.h"

namespace millrace {
namespace {

constexpr int64_t kPlentyOfWork = 1'000'000'000;

struct WorkRules {
  GrammarSpec spec;
  RuleId rule(ExprId body) {
    const RuleId id = spec.add_rule("r" + std::to_string(spec.rules().size()));
    spec.set_body(id, body);
    return id;
  }
  ExprId calls(const std::vector<RuleId>& rules, std::string_view after = "") {
    std::vector<ExprId> ways;
    for (const RuleId one : rules) ways.push_back(spec.call(one));
    return after.empty() ? spec.choice(ways) : spec.sequence({spec.choice(ways), spec.bytes(after)});
  }
  std::shared_ptr<const Grammar> grammar(RuleId root) {
    spec.root = root;
    auto made = Grammar::create(spec);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return std::make_shared<const Grammar>(std::move(made).value());
  }
};

// The work of the start, and then of each byte.
std::vector<int64_t> charges_of(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  ParseTable table(grammar);
  std::vector<int64_t> out;
  table.set_work(kPlentyOfWork);
  SetId set = table.begin();
  out.push_back(kPlentyOfWork - table.work_left());
  for (const char c : text) {
    table.set_work(kPlentyOfWork);
    set = table.step(set, static_cast<uint8_t>(c));
    out.push_back(kPlentyOfWork - table.work_left());
  }
  return out;
}

using Charges = std::vector<int64_t>;

TEST(ParseWork, OfATextIsASetForEachByte) {
  WorkRules rules;
  const auto grammar = rules.grammar(rules.rule(rules.spec.bytes("ab")));
  ASSERT_EQ(grammar->classes(), 4);
  EXPECT_EQ(charges_of(grammar, "ab"), (Charges{8 + 65, 1 + 8 + 65, 1 + 8 + 65}));
  EXPECT_EQ(charges_of(grammar, "z"), (Charges{73, 1})) << "nothing is added for a byte that is refused";
  WorkRules wide;  // 23 letters, each a class, and the two around each
  const auto many = wide.grammar(wide.rule(wide.spec.bytes("acegikmoqsuwyACEGIKMOQS")));
  EXPECT_EQ(charges_of(many, "")[0], 8 + 64 + many->classes() / 4);
  EXPECT_GE(many->classes(), 40);
}

TEST(ParseWork, KnownStepsAreFree) {
  WorkRules rules;
  const auto grammar = rules.grammar(rules.rule(rules.spec.repeat(rules.spec.bytes("ab"), 0, kNoLimit)));
  EXPECT_EQ(charges_of(grammar, "ababab"), (Charges{73, 74, 74, 74, 0, 0, 0})) << "the first state is never shared";
}

TEST(ParseWork, OfACallIsAFrame) {
  WorkRules rules;
  const RuleId leaf = rules.rule(rules.spec.bytes("a"));
  const auto grammar = rules.grammar(rules.rule(rules.calls({leaf}, "b")));
  // The start: two parses, a call, a frame of one parent, a set. The byte a: the end of the rule, its one parent, the
  // state behind the call.
  EXPECT_EQ(charges_of(grammar, "ab"), (Charges{8 + 16 + 8 + 65 + 65, 1 + 8 + 8 + 8 + 65, 1 + 8 + 65}));
}

TEST(ParseWork, OfAParseFoundTwiceIsThatOfOne) {
  WorkRules rules;
  const RuleId z = rules.rule(rules.spec.bytes("a"));
  const RuleId x = rules.rule(rules.calls({z})), y = rules.rule(rules.calls({z}));
  // x and y end with their call, so that z returns to the end of the root: one parse of it, found twice.
  EXPECT_EQ(charges_of(rules.grammar(rules.rule(rules.calls({x, y}))), ""), (Charges{8 + 32 + 24 + 24 + 8 + 64}));
}

TEST(ParseWork, OfManyParsesFoundTwiceIsThatOfOneEach) {
  for (const int n : {5, 22, 23, 24, 25, 60}) {  // few are searched one by one, more by a table
    WorkRules rules;
    std::vector<RuleId> leaves, both;
    for (int i = 0; i < n; ++i)
      leaves.push_back(rules.rule(rules.spec.bytes("a" + std::string(static_cast<size_t>(i), 'b'))));
    for (int i = 0; i < 2; ++i) both.push_back(rules.rule(rules.calls(leaves)));
    const auto grammar = rules.grammar(rules.rule(rules.calls(both)));
    EXPECT_EQ(charges_of(grammar, "")[0], 8 + 32 + 2 * (8 + 16 * n) + 8 * n + 65) << n;
  }
}

TEST(ParseWork, OfAFrameCountsItsParents) {
  for (const int n : {1, 2, 7, 30}) {
    WorkRules rules;  // n rules call a shared one, which returns to n places; its own call of the leaf to those n calls
    const RuleId leaf = rules.rule(rules.spec.bytes("a")), shared = rules.rule(rules.calls({leaf}, "b"));
    std::vector<RuleId> callers;
    for (int i = 0; i < n; ++i)
      callers.push_back(rules.rule(rules.calls({shared}, std::string(1, static_cast<char>('A' + i)))));
    const auto grammar = rules.grammar(rules.rule(rules.calls(callers)));
    ParseTable table(grammar);
    const auto work = [&](auto act) {
      table.set_work(kPlentyOfWork);
      act();
      return kPlentyOfWork - table.work_left();
    };
    SetId begin = kDead, back = kDead;
    const int64_t set = 64 + grammar->classes() / 4, calls = (8 + 16 * n) + 24 * n + 24 * n + 8;
    EXPECT_EQ(work([&] { begin = table.begin(); }), calls + 65 * n + (64 + n) + set) << n;
    ASSERT_EQ(table.configs(begin).size(), 1u);
    const FrameId frame = table.configs(begin)[0].frame;
    ASSERT_EQ(table.parents(frame).size(), static_cast<size_t>(n));
    EXPECT_EQ(work([&] { back = table.returned(frame); }), 16 * n + set) << "n parents, n parses";
    EXPECT_EQ(work([&] { EXPECT_EQ(table.returned(frame), back); }), 0) << "it is known";
    EXPECT_EQ(table.configs(back).size(), static_cast<size_t>(n));
    EXPECT_EQ(work([&] { table.returned(table.parents(frame)[0]); }), 16 + set) << "one parent, one parse";
    EXPECT_EQ(work([&] { EXPECT_EQ(table.returned(0), kDead); }), 0) << "nothing follows the outermost rule";
  }
}

std::shared_ptr<const Grammar> letters_to_charge(uint32_t need, uint32_t room) {
  WorkRules rules;
  const RuleId letters = rules.rule(rules.spec.sequence(
      {rules.spec.repeat(rules.spec.sequence({rules.spec.bytes("a"), rules.spec.tick()}), 0, kNoLimit),
       rules.spec.bytes(".")}));
  return rules.grammar(rules.rule(rules.spec.sequence({rules.spec.call(letters, need, room), rules.spec.bytes("!")})));
}

TEST(ParseWork, OfATickIsAFrame) {
  const Charges start{8 + 16 + 8 + 65 + 65}, tick{1 + 65 + 8 + 65}, end{1 + 8 + 8 + 8 + 65}, after{1 + 8 + 65};
  const auto expected = [](std::vector<Charges> parts) {
    Charges out;
    for (const Charges& part : parts) out.insert(out.end(), part.begin(), part.end());
    return out;
  };
  ASSERT_EQ(letters_to_charge(2, 3)->classes() / 4, 1);
  EXPECT_EQ(charges_of(letters_to_charge(2, 3), "aaa.!"), expected({start, tick, tick, tick, end, after}));
  EXPECT_EQ(charges_of(letters_to_charge(2, 3), "aaaa"), expected({start, tick, tick, tick, {1}}))
      << "there is no room";
  EXPECT_EQ(charges_of(letters_to_charge(2, 3), "a."), expected({start, tick, {1}})) << "one is missing";
  EXPECT_EQ(charges_of(letters_to_charge(2, kNoLimit), "aaaa.!"), expected({start, tick, tick, {74}, {0}, end, after}))
      << "without a bound the frame stays the same";
}

TEST(ParseWork, EndsExactlyAtItsBound) {
  const auto grammar = letters_to_charge(2, 3);
  int64_t all = 0;
  for (const int64_t one : charges_of(grammar, "aaa.!")) all += one;
  for (const int64_t missing : {0, 1}) {
    ParseTable table(grammar);
    table.set_work(all - missing);
    SetId set = table.begin();
    for (const char c : std::string_view("aaa.!")) set = table.step(set, static_cast<uint8_t>(c));
    EXPECT_EQ(set == kDead, missing > 0);
    EXPECT_EQ(table.exceeded(), missing > 0 ? ParseBound::work : ParseBound::none);
    EXPECT_EQ(table.work_left(), -missing);
  }
}

TEST(ParseWork, BeyondABoundNothingIsKept) {
  const auto grammar = letters_to_charge(2, 3);
  ParseTable table(grammar);
  const SetId begin = table.begin();
  const FrameId frame = table.configs(begin)[0].frame;
  table.set_work(0);
  EXPECT_EQ(table.step(begin, 'a'), kDead);
  EXPECT_EQ(table.returned(frame), kDead);
  EXPECT_EQ(table.begin(), kDead);
  EXPECT_EQ(table.exceeded(), ParseBound::work);
  const int64_t left = table.work_left();
  EXPECT_EQ(table.step(begin, 'a'), kDead);
  EXPECT_EQ(table.returned(frame), kDead);
  EXPECT_EQ(table.work_left(), left) << "nothing more is computed";
  table.clear_exceeded();
  table.set_work(kPlentyOfWork);
  EXPECT_NE(table.step(begin, 'a'), kDead) << "what was cut off is computed again";
  EXPECT_NE(table.returned(frame), kDead);
  EXPECT_EQ(table.begin(), begin);
  EXPECT_EQ(table.exceeded(), ParseBound::none);
}

}  // namespace
}  // namespace millrace
