// Compares tick ranges with their definition (the numbers of ticks with which the end is reachable) over random graphs,
// and tests their use by a grammar.
#include "text/grammar/tick_ranges.h"

#include <gtest/gtest.h>

#include <random>

#include "text/grammar/parse_table.h"

namespace millrace {
namespace {

// reached[s][n]: the end is reachable from state s with n ticks.
std::vector<std::vector<uint8_t>> reached_by(const std::vector<uint8_t>& accepting, const std::vector<TickEdge>& edges,
                                             size_t most) {
  std::vector<std::vector<uint8_t>> reached(accepting.size(), std::vector<uint8_t>(most + 1, 0));
  for (size_t s = 0; s < accepting.size(); ++s) reached[s][0] = accepting[s];
  for (bool changed = true; changed;) {
    changed = false;
    for (const TickEdge& edge : edges)
      for (size_t n = edge.ticks; n <= most; ++n) {
        uint8_t& here = reached[static_cast<size_t>(edge.from)][n];
        if (here || !reached[static_cast<size_t>(edge.to)][n - edge.ticks]) continue;
        here = changed = true;
      }
  }
  return reached;
}

TEST(TickRanges, MatchTheDefinition) {
  constexpr size_t kMax = 40;
  size_t bounded = 0, open = 0, gaps = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const size_t states = 1 + random() % 7;
    std::vector<uint8_t> accepting(states, 0);
    accepting[random() % states] = 1;
    if (random() % 3 == 0) accepting[random() % states] = 1;
    std::vector<TickEdge> edges;
    for (size_t n = random() % 12; n > 0; --n)
      edges.push_back({static_cast<int32_t>(random() % states), static_cast<int32_t>(random() % states),
                       static_cast<uint32_t>(random() % 2)});
    const auto ranges = tick_ranges(accepting, edges, nullptr);
    ASSERT_TRUE(ranges.ok());
    const auto reached = reached_by(accepting, edges, kMax);
    bool whole = true;
    for (size_t s = 0; s < states; ++s) {
      const TickRange& range = ranges->states[s];
      uint32_t least = kNoLimit, most = 0;
      for (uint32_t n = 0; n <= kMax; ++n)
        if (reached[s][n]) least = std::min(least, n), most = n;
      ASSERT_EQ(range.least, least) << "seed " << seed << " state " << s;
      // There are at most 7 states, so a path with more than 8 ticks contains a cycle.
      ASSERT_EQ(range.most, most > 8 ? kNoLimit : most) << "seed " << seed << " state " << s;
      ++(range.most == kNoLimit ? open : bounded);
      for (uint32_t n = 0; n <= 20; ++n) {
        const bool within = range.meets(n, n);
        if (reached[s][n]) {
          ASSERT_TRUE(within);
        }
        whole &= within == (reached[s][n] != 0);
      }
    }
    ASSERT_EQ(ranges->gaps, !whole) << "seed " << seed;
    gaps += ranges->gaps;
  }
  EXPECT_GT(bounded, 1000u);
  EXPECT_GT(open, 1000u);
  EXPECT_GT(gaps, 50u);
}

// A rule with these texts, in which "." ticks, and a call with bounds on the ticks.
Result<Grammar> counted(const std::vector<std::string>& texts, bool often, uint32_t need, uint32_t room) {
  GrammarSpec spec;
  std::vector<ExprId> ways;
  for (const std::string& text : texts) {
    std::vector<ExprId> parts;
    for (const char c : text) {
      parts.push_back(spec.bytes(std::string(1, c)));
      if (c == '.') parts.push_back(spec.tick());
    }
    ways.push_back(spec.sequence(std::move(parts)));
  }
  const RuleId rule = spec.add_rule("list");
  spec.set_body(rule,
                spec.sequence({spec.repeat(spec.choice(ways), often ? 0 : 1, often ? kNoLimit : 1), spec.bytes("]")}));
  spec.root = spec.add_rule("root");
  spec.set_body(spec.root, spec.choice({spec.bytes("x"), spec.call(rule, need, room)}));
  return Grammar::create(spec);
}

TEST(TickRanges, ImpossibleCallsAreRemoved) {
  const auto begins = [](Result<Grammar> grammar, char byte) {
    EXPECT_TRUE(grammar.ok());
    ParseTable table(std::make_shared<const Grammar>(std::move(grammar).value()));
    EXPECT_NE(table.step(table.begin(), 'x'), kDead);
    return table.step(table.begin(), static_cast<uint8_t>(byte)) != kDead;
  };
  EXPECT_TRUE(begins(counted({".", ".."}, false, 2, 3), '.'));
  EXPECT_FALSE(begins(counted({".", ".."}, false, 3, 3), '.'));
  EXPECT_FALSE(begins(counted({".", ".."}, false, 0, 0), '.'));
  EXPECT_FALSE(begins(counted({"a.", "b"}, true, 3, 2), 'a'));
  EXPECT_TRUE(begins(counted({"a.", "b"}, true, 100, 100), 'b'));
}

TEST(TickRanges, RulesWithGapsAreRejected) {
  const auto even = counted({".."}, true, 0, 5), apart = counted({"a", "b.."}, false, 0, 5);
  ASSERT_FALSE(even.ok());
  ASSERT_FALSE(apart.ok());
  EXPECT_EQ(even.error().kind, ErrorKind::unsupported);
  EXPECT_NE(apart.error().message.find("rule 'list' cannot be counted"), std::string::npos) << apart.error().message;
}

}  // namespace
}  // namespace millrace
