// Heads that are pruned, against their definition.
#include "kv/head_cascade.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kv/token_eviction.h"

namespace millrace {
namespace {

std::shared_ptr<const EvictionRule> head_rule(const std::string& heads) {
  auto rule = make_eviction_rule("spatten:keep=8,final=4,recent=2,slack=2,heads=" + heads);
  EXPECT_TRUE(rule.ok()) << (rule.ok() ? "" : rule.error().message);
  return rule.ok() ? *rule : nullptr;
}

std::vector<int64_t> head_counts(const EvictionRule& rule, int64_t layers, int64_t heads) {
  std::vector<int64_t> out;
  for (int64_t layer = 0; layer < layers; ++layer) out.push_back(rule.evictor->heads_of(layer, layers, heads));
  return out;
}

TEST(HeadCascade, HeadsFallFromAllToTheShare) {
  EXPECT_EQ(head_counts(*head_rule("0.5"), 5, 8), (std::vector<int64_t>{8, 7, 6, 5, 4}));
  EXPECT_EQ(head_counts(*head_rule("0"), 3, 4), (std::vector<int64_t>{4, 2, 1}));
  EXPECT_EQ(head_counts(*head_rule("0.3"), 2, 1), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(head_counts(*head_rule("1"), 3, 4), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_FALSE(head_rule("1")->evictor->prunes_heads());
  EXPECT_TRUE(head_rule("0.5")->evictor->prunes_heads());
  EXPECT_EQ(make_eviction_rule("spatten:heads=1.5").error().message,
            "evictor spatten: heads: must be between 0 and 1, got 1.5");
}

TEST(HeadCascade, KeepsTheWorthiestInEveryLayer) {
  const auto rule = head_rule("0.5");
  HeadCascade cascade(3, 4);
  EXPECT_EQ(cascade.kept(0), nullptr);  // before a decision all attend
  const int64_t worth[] = {5, 9, 9, 1};
  std::ranges::copy(worth, cascade.worth().begin());
  cascade.decide(*rule->evictor);
  const auto kept = [&](int64_t layer) { return std::vector<int>(cascade.kept(layer), cascade.kept(layer) + 4); };
  EXPECT_EQ(kept(0), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(kept(1), (std::vector<int>{1, 1, 1, 0}));
  EXPECT_EQ(kept(2), (std::vector<int>{0, 1, 1, 0}));
  cascade.worth()[3] += 20;  // sums go on, and a head may come back
  cascade.decide(*rule->evictor);
  EXPECT_EQ(kept(2), (std::vector<int>{0, 1, 0, 1}));
  cascade.clear();
  EXPECT_EQ(cascade.kept(2), nullptr);
  EXPECT_EQ(cascade.worth()[3], 0);
}

TEST(HeadCascade, DraftedTokensCountOnceTheyAreKept) {
  HeadCascade cascade(2, 2);
  cascade.reserve(3);
  const auto rows = cascade.draft_worth(3);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i) + 1;
  cascade.keep_drafted();
  cascade.keep_drafted();
  EXPECT_EQ(cascade.worth()[0], 1 + 3);
  EXPECT_EQ(cascade.worth()[1], 2 + 4);
  for (const int64_t one : cascade.draft_worth(2)) EXPECT_EQ(one, 0);
}

}  // namespace
}  // namespace millrace
