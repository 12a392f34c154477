// The memory of a parse table: what bytes() counts, and that a table stops as soon as it holds more than its bound.
#include <gtest/gtest.h>

#include "text/grammar/parse_table.h"

namespace millrace {
namespace {

std::shared_ptr<const Grammar> memory_grammar(const GrammarSpec& spec) {
  auto grammar = Grammar::create(spec);
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
  return std::make_shared<const Grammar>(std::move(grammar).value());
}

std::shared_ptr<const Grammar> memory_of_text(size_t bytes) {
  GrammarSpec spec;
  spec.root = spec.add_rule("root");
  spec.set_body(spec.root, spec.bytes(std::string(bytes, 'a')));
  return memory_grammar(spec);
}

// Each letter makes a frame and a set.
std::shared_ptr<const Grammar> memory_of_letters() {
  GrammarSpec spec;
  const RuleId letters = spec.add_rule("letters");
  spec.set_body(letters, spec.sequence({spec.repeat(spec.sequence({spec.bytes("a"), spec.tick()}), 0, kNoLimit),
                                        spec.bytes(".")}));
  spec.root = spec.add_rule("root");
  spec.set_body(spec.root, spec.sequence({spec.call(letters, 5000, 5000), spec.bytes("!")}));
  return memory_grammar(spec);
}

// So many calls at once, which differ by their room.
std::shared_ptr<const Grammar> memory_of_calls(uint32_t calls) {
  GrammarSpec spec;
  const RuleId letters = spec.add_rule("letters");
  spec.set_body(letters, spec.sequence({spec.repeat(spec.sequence({spec.bytes("a"), spec.tick()}), 0, kNoLimit),
                                        spec.bytes(".")}));
  std::vector<ExprId> ways;
  for (uint32_t i = 0; i < calls; ++i) ways.push_back(spec.call(letters, 0, i + 1));
  spec.root = spec.add_rule("root");
  spec.set_body(spec.root, spec.choice(ways));
  return memory_grammar(spec);
}

TEST(ParseMemory, OfANewTableIsTheRootAndTheDeadSet) {
  for (const size_t bytes : {size_t{1}, size_t{40}}) {
    const auto grammar = memory_of_text(bytes);
    const size_t frame = sizeof(ParseTable::Frame) + sizeof(SetId) + 48;  // and their entries in the indexes
    const size_t set = 16 + 48;
    EXPECT_EQ(ParseTable(grammar).bytes(), frame + set + sizeof(SetId) * static_cast<size_t>(grammar->classes()));
  }
}

TEST(ParseMemory, GrowsByWhatEachTableHolds) {
  ParseTable table(memory_of_letters());
  SetId set = table.begin();
  for (int i = 0; i < 4096; ++i) set = table.step(set, 'a');
  ASSERT_NE(set, kDead);
  const auto frames = static_cast<size_t>(table.frames());
  const size_t classes = static_cast<size_t>(table.grammar().classes());
  ASSERT_GE(frames, 4097u);
  const size_t each = sizeof(ParseTable::Frame) + sizeof(SetId) + 48 + sizeof(FrameId) +  // the frame and its parent
                      16 + 48 + sizeof(ParseConfig) + classes * sizeof(SetId);            // the set and its parse
  EXPECT_GE(table.bytes(), frames * each);
  EXPECT_LE(table.bytes(), 2 * frames * each + 1000) << "a list holds room for twice its entries at most";
}

// Steps from set to set until the table stops; returns their number.
int steps_within(const std::shared_ptr<const Grammar>& grammar, size_t most, std::vector<size_t>* held = nullptr) {
  ParseTable table(grammar, most);
  SetId set = table.begin();
  for (int steps = 0;; ++steps) {
    if (set == kDead) {
      EXPECT_EQ(table.exceeded(), ParseBound::bytes);
      return steps;
    }
    if (held) held->push_back(table.bytes());
    if (steps == 1000) return steps;
    set = table.step(set, 'a');
  }
}

// A step is refused if the table held more than its bound before.
TEST(ParseMemory, StopsOneByteAboveItsBound) {
  const auto grammar = memory_of_text(2000);
  std::vector<size_t> held;
  ASSERT_EQ(steps_within(grammar, ParseTable::kMaxBytes, &held), 1000);
  for (const size_t step : {10u, 100u, 300u, 500u}) {
    size_t last = step;  // of those with the same bytes
    while (last + 1 < held.size() && held[last + 1] == held[step]) ++last;
    EXPECT_EQ(steps_within(grammar, held[step]), static_cast<int>(last) + 2) << "one more may make it grow";
    size_t first = step;
    while (held[first - 1] == held[step]) --first;
    EXPECT_EQ(steps_within(grammar, held[step] - 1), static_cast<int>(first) + 1);
  }
}

TEST(ParseMemory, FramesAreCheckedAsSetsAre) {
  const auto grammar = memory_of_letters();
  std::vector<size_t> held;
  ASSERT_EQ(steps_within(grammar, ParseTable::kMaxBytes, &held), 1000);
  for (const size_t step : {20u, 100u, 300u}) {
    size_t last = step, first = step;
    while (last + 1 < held.size() && held[last + 1] == held[step]) ++last;
    while (held[first - 1] == held[step]) --first;
    ASSERT_GT(last, first + 2);
    EXPECT_GE(steps_within(grammar, held[step]), static_cast<int>(last) + 1) << "as long as it does not grow";
    EXPECT_LE(steps_within(grammar, held[step] - 1), static_cast<int>(first) + 1);
  }
}

TEST(ParseMemory, ManyFramesStopBeforeTheirSetIsMade) {
  const auto grammar = memory_of_calls(4000);
  ParseTable all(grammar), few(grammar, 200'000);
  ASSERT_NE(all.begin(), kDead);
  EXPECT_GT(all.frames(), 4000u);
  EXPECT_EQ(few.begin(), kDead);
  EXPECT_EQ(few.exceeded(), ParseBound::bytes);
  EXPECT_LT(few.frames(), 2000u);
}

TEST(ParseMemory, OfACopyIsLimitedToo) {
  const auto grammar = memory_of_calls(2000);
  ParseTable from(grammar);
  const std::vector<SetId> sets{from.begin(), from.step(from.begin(), 'a')};
  ParseTable whole(grammar);
  std::vector<SetId> copied = sets;
  whole.import(from, copied);
  ASSERT_EQ(whole.exceeded(), ParseBound::none);
  ASSERT_NE(copied[1], kDead);
  ParseTable little(grammar, 50'000);
  copied = sets;
  little.import(from, copied);
  EXPECT_EQ(little.exceeded(), ParseBound::bytes);
  EXPECT_EQ(copied, (std::vector<SetId>{kDead, kDead}));
  EXPECT_LT(little.frames(), whole.frames() / 2);
}

TEST(ParseMemory, ACopyKnowsEachSetOnce) {
  const auto grammar = memory_of_calls(30);
  ParseTable from(grammar);
  const SetId begin = from.begin(), one = from.step(begin, 'a'), two = from.step(one, 'a');
  ParseTable to(grammar);
  std::vector<SetId> sets{two, begin, two, kDead, one, begin};
  to.import(from, sets);
  EXPECT_EQ(sets[0], sets[2]);
  EXPECT_EQ(sets[1], sets[5]);
  EXPECT_EQ(sets[3], kDead);
  EXPECT_EQ(to.begin(), sets[1]);
  EXPECT_EQ(to.step(sets[1], 'a'), sets[4]);
  EXPECT_EQ(to.step(sets[4], 'a'), sets[0]);
  EXPECT_EQ(to.frames(), from.frames());
  EXPECT_EQ(to.configs(sets[0]).size(), from.configs(two).size());
}

}  // namespace
}  // namespace millrace
