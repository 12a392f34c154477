// The masks of single states: what is recorded of counted rules, what a mask costs to compute, what the store forgets.
#include "text/grammar/token_masks.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr int64_t kEnoughWork = 20'000'000;

std::shared_ptr<const Grammar> made(const GrammarSpec& spec) {
  auto grammar = Grammar::create(spec);
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
  return std::make_shared<const Grammar>(std::move(grammar).value());
}

// Two ways to read "x"; after one of them at most `first` y may follow, after the other at most `second`, each a tick.
std::shared_ptr<const Grammar> ambiguous(uint32_t first, uint32_t second) {
  GrammarSpec spec;
  std::vector<ExprId> ways;
  for (const uint32_t most : {first, second}) {
    const RuleId x = spec.add_rule("x");
    spec.set_body(x, spec.choice({spec.bytes("x"), spec.sequence({spec.bytes("("), spec.call(x), spec.bytes(")")})}));
    const ExprId y = spec.repeat(spec.sequence({spec.bytes("y"), spec.tick()}), 0, most);
    ways.push_back(spec.sequence({spec.call(x), y, spec.bytes("]")}));
  }
  const RuleId list = spec.add_rule("list");
  spec.set_body(list, spec.choice(ways));
  spec.root = spec.add_rule("root");
  spec.set_body(spec.root, spec.sequence({spec.bytes("["), spec.call(list, 0, 5)}));
  return made(spec);
}

// The mask of the first state of the list.
StateMask list_mask(const std::shared_ptr<const Grammar>& grammar) {
  TokenMasks masks({"x", "y", "(", "]"});
  const int32_t list = grammar->calls(grammar->step(grammar->start(), '[')).front().start;
  EXPECT_TRUE(grammar->counted(list));
  return *masks.find(grammar, masks.new_grammar(), list);
}

TEST(StateMasks, KeepOnlyParsesThatNoOtherSubsumes) {
  for (const auto& [first, second] : {std::pair{1u, kNoLimit}, {kNoLimit, 1u}, {2u, kNoLimit}, {3u, 3u}}) {
    const StateMask mask = list_mask(ambiguous(first, second));
    EXPECT_EQ(mask.list, (std::vector<TokenId>{2, 0})) << "in the order of their bytes";
    EXPECT_TRUE(mask.counted_open.empty());
    EXPECT_TRUE(mask.counted_some.empty()) << "each token leaves all the numbers of ticks open that the state has";
    EXPECT_EQ(mask.most_ticks, 0u);
  }
}

TEST(StateMasks, WithoutTicksCostTheWalkAlone) {
  GrammarSpec spec;
  const RuleId x = spec.add_rule("x");
  spec.set_body(x, spec.choice({spec.bytes("a"), spec.sequence({spec.bytes("b"), spec.call(x)})}));
  spec.root = spec.add_rule("root");
  spec.set_body(spec.root, spec.sequence({spec.call(x), spec.bytes(","), spec.call(x)}));
  const auto grammar = made(spec);
  TokenMasks masks({"a", "b", "ab", "ba", "a,", "ba,a", "bba,b", ",", ",a"});
  const auto id = masks.new_grammar();
  size_t exits = 0;
  for (int32_t state = 0; state < grammar->states(); ++state) {
    ParseTable table(grammar);
    table.set_work(kEnoughWork);
    TrieWalk walk(masks.trie(), 1, static_cast<uint32_t>(masks.trie().nodes().size()), table.begin_on_floor(state));
    EXPECT_TRUE(run_walk(masks.trie(), table, walk, [](uint32_t, SetId) {}));
    const auto mask = masks.find(grammar, id, state);
    EXPECT_EQ(mask->work, kEnoughWork - table.work_left()) << state;
    EXPECT_EQ(mask->exceeded, ParseBound::none);
    for (const StateMask::Exit& exit : mask->exits) EXPECT_EQ(exit.ticks, 0);
    exits += mask->exits.size();
  }
  EXPECT_GT(exits, 0u);
}

TEST(StateMasks, AreForgottenOneByOne) {
  GrammarSpec spec;
  spec.root = spec.add_rule("x");
  spec.set_body(spec.root, spec.choice({spec.sequence({spec.bytes("abcdef"), spec.call(0)}), spec.bytes("g")}));
  const auto grammar = made(spec);
  const std::vector<std::string> pieces = {"a", "b", "c", "d", "e", "f", "g"};
  TokenMasks all(pieces);
  const size_t one = all.find(grammar, 1, 1)->bytes();
  TokenMasks two(pieces, 2 * one + one / 2);
  for (int turn = 1; turn <= 3; ++turn) {
    for (const int32_t state : {1, 3, 4, 5, 6}) {
      const auto mask = two.find(grammar, 1, state);
      ASSERT_EQ(mask->list.size(), 1u);
      EXPECT_EQ(mask->bytes(), one);
      EXPECT_LE(two.bytes(), 2 * one);
    }
    EXPECT_EQ(two.computed(), turn * 5) << "each had been forgotten when it was asked for again";
    EXPECT_EQ(two.bytes(), 2 * one);
  }
  EXPECT_EQ((two.find(grammar, 1, 6), two.find(grammar, 1, 5), two.computed()), 15) << "the last two are still there";
  TokenMasks none(pieces, 0);
  for (const int32_t state : {1, 3, 3, 1}) none.find(grammar, 1, state);
  EXPECT_EQ(none.computed(), 3) << "the mask in use stays";
  EXPECT_EQ(none.bytes(), one);
}

}  // namespace
}  // namespace millrace
