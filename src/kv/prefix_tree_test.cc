// PrefixTree against a plain list of its blocks: random prompts are stored, found, retained, weighed and evicted under
// every evictor, and each victim must follow the rules.
#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/philox.h"

namespace millrace {
namespace {

using Node = PrefixTree::Node;

struct Plain {
  Node parent = PrefixTree::kNone;
  PrefixUse use;
  int children = 0;
};

class Trees : public ::testing::TestWithParam<const PrefixEvictor*> {};

TEST_P(Trees, VictimFollowsTheRules) {
  const PrefixEvictor& evictor = *GetParam();
  PrefixTree tree(evictor);
  std::map<Node, Plain> plain;
  double now = 0;
  int64_t tick = 0, stored = 0, erased = 0, reused = 0;
  const auto any = [&](uint32_t draw) {
    auto at = plain.begin();
    std::advance(at, draw % plain.size());
    return at;
  };
  // Among evictable leaves: by rank; retained blocks only after all others, those with the longest retention last.
  const auto expected = [&](const auto& may_go) {
    std::optional<std::pair<std::tuple<bool, double, EvictRank, Node>, Node>> least;
    for (const auto& [node, one] : plain) {
      if (one.children > 0 || !may_go(node)) continue;
      const bool kept = one.use.keep_until > now;
      const std::tuple key(kept, kept ? one.use.keep_until : 0.0, kept ? EvictRank{} : evictor.rank(one.use), node);
      if (!least || key < least->first) least = {key, node};
    }
    return least ? least->second : PrefixTree::kNone;
  };
  for (uint64_t step = 0; step < 6000; ++step) {
    const auto draw = philox4x32(4, step, 0);
    if (draw[0] % 4 == 0) {
      now += static_cast<double>(draw[1] % 5);
      tree.begin_use(now);
      ++tick;
    }
    const uint32_t what = plain.size() > 40 ? 9 : draw[1] % 10;
    if (plain.empty() || what < 3) {
      const Node parent = plain.empty() || draw[2] % 4 == 0 ? PrefixTree::kNone : any(draw[3])->first;
      const double keep = draw[2] % 5 == 0 ? now + static_cast<double>(draw[3] % 20) : 0;
      const Node node = tree.add(parent, keep);
      ASSERT_FALSE(plain.contains(node));
      Plain fresh{.parent = parent};
      fresh.use = {.depth = parent == PrefixTree::kNone ? 0 : plain[parent].use.depth + 1,
                   .uses = 1,
                   .last_use = tick,
                   .stored_seconds = now,
                   .last_seconds = now,
                   .importance = 0,
                   .keep_until = keep};
      if (parent != PrefixTree::kNone) ++plain[parent].children;
      plain[node] = fresh;
      ++stored;
    } else if (what < 5) {
      auto& [node, one] = *any(draw[3]);
      tree.use(node);
      ++one.use.uses, one.use.last_use = tick, one.use.last_seconds = now;
      ++reused;
    } else if (what == 5) {
      auto& [node, one] = *any(draw[3]);
      tree.refresh(node);
      one.use.last_use = tick, one.use.last_seconds = now;
    } else if (what == 6) {
      auto& [node, one] = *any(draw[3]);
      const double until = now + static_cast<double>(draw[2] % 15) - 3;
      tree.keep(node, until);
      one.use.keep_until = std::max(one.use.keep_until, until);
    } else if (what == 7) {
      auto& [node, one] = *any(draw[3]);
      const double importance = static_cast<double>(draw[2] % 100) / 10;
      tree.weigh(node, importance);
      one.use.importance = std::max(one.use.importance, importance);
    } else {
      if (draw[2] % 3 == 0) now += 2;
      const auto may_go = [&](Node node) { return draw[2] % 2 == 0 || static_cast<uint32_t>(node) % 3 != draw[3] % 3; };
      const Node victim = tree.victim(now, may_go);
      ASSERT_EQ(victim, expected(may_go)) << step;
      if (victim == PrefixTree::kNone) continue;
      tree.erase(victim, now);
      if (plain[victim].parent != PrefixTree::kNone) --plain[plain[victim].parent].children;
      plain.erase(victim);
      ++erased;
    }
    ASSERT_EQ(tree.size(), static_cast<int64_t>(plain.size()));
    for (const auto& [node, one] : plain) {
      ASSERT_EQ(tree.parent(node), one.parent);
      const PrefixUse& use = tree.use_of(node);
      ASSERT_EQ(use.depth, one.use.depth);
      ASSERT_EQ(use.uses, one.use.uses);
      ASSERT_EQ(use.last_use, one.use.last_use);
      ASSERT_EQ(use.keep_until, one.use.keep_until);
      ASSERT_EQ(use.importance, one.use.importance);
      ASSERT_EQ(use.last_seconds, one.use.last_seconds);
      ASSERT_EQ(use.stored_seconds, one.use.stored_seconds);
    }
  }
  EXPECT_EQ(tree.stats().stored, stored);
  EXPECT_EQ(tree.stats().erased, erased);
  EXPECT_EQ(tree.stats().lifetime.count(), erased);
  EXPECT_EQ(tree.stats().idle.count(), erased);
  EXPECT_EQ(tree.stats().reuse_gap.count(), reused);
  EXPECT_LE(tree.slots(), 45) << "erased nodes are reused";
  EXPECT_GT(erased, 1000);
}

INSTANTIATE_TEST_SUITE_P(OfEach, Trees,
                         ::testing::ValuesIn(prefix_evictors().members().begin(), prefix_evictors().members().end()),
                         [](const auto& one) { return std::string(one.param->name); });

TEST(PrefixTree, EvictionReportsAgeAndIdleTime) {
  PrefixTree tree(*find_prefix_evictor("lru"));
  tree.begin_use(10);
  const Node node = tree.add(PrefixTree::kNone);
  tree.begin_use(14);
  tree.use(node);
  tree.erase(node, 21);
  EXPECT_DOUBLE_EQ(tree.stats().lifetime.mean_seconds(), 11);
  EXPECT_DOUBLE_EQ(tree.stats().idle.mean_seconds(), 7);
  EXPECT_DOUBLE_EQ(tree.stats().reuse_gap.mean_seconds(), 4);
}

TEST(Evictors, RanksMatchTheirSummaries) {
  EXPECT_EQ(prefix_evictors().members().front()->name, "lru");
  EXPECT_EQ(find_prefix_evictor("nobody"), nullptr);
  const PrefixUse often_old{.depth = 1, .uses = 5, .last_use = 3}, rare_new{.depth = 2, .uses = 1, .last_use = 9};
  EXPECT_LT(find_prefix_evictor("lru")->rank(often_old), find_prefix_evictor("lru")->rank(rare_new));
  for (const char* name : {"lfu", "length_aware", "importance"})
    EXPECT_GT(find_prefix_evictor(name)->rank(often_old), find_prefix_evictor(name)->rank(rare_new)) << name;
  const auto importance = [](double value, int64_t uses = 1) {
    return find_prefix_evictor("importance")->rank({.depth = 0, .uses = uses, .last_use = 1, .importance = value});
  };
  EXPECT_EQ(importance(0), importance(1)) << "unobserved blocks count as an even share";
  EXPECT_LT(importance(0.5), importance(0));
  EXPECT_LT(importance(1), importance(1.01));
  EXPECT_EQ(importance(2, 3), importance(3, 2));
  EXPECT_EQ(importance(1e7), importance(1e6)) << "and stays finite";
  EXPECT_EQ(importance(1, int64_t{1} << 40), importance(1, int64_t{1} << 30));
  EXPECT_LT(importance(1, 1), importance(1, 1 << 30));
}

}  // namespace
}  // namespace millrace
