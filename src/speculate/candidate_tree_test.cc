#include "speculate/candidate_tree.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

DraftPick pick(TokenId drawn, std::array<TokenId, 4> likely, std::array<float, 4> share) {
  DraftPick made;
  made.drawn = drawn;
  made.likely = likely;
  made.share = share;
  return made;
}

using Tokens = std::vector<TokenId>;
using Parents = std::vector<int32_t>;

TEST(CandidateTree, TakesTheCandidatesThatAreLikeliestReached) {
  CandidateTree tree;
  EXPECT_EQ(tree.add(-1, pick(5, {5, 6, 7, 8}, {0.6f, 0.3f, 0.05f, 0.01f}), 3, false), 3);
  EXPECT_EQ(tree.add(0, pick(1, {1, 2, 3, 4}, {0.4f, 0.1f, 0, 0}), 3, false), 2);  // no candidates without a share
  EXPECT_EQ(tree.add(1, pick(9, {9, 2, 3, 4}, {0.9f, 0.1f, 0, 0}), 3, false), 2);
  Draft draft;
  tree.choose(4, true, draft);  // 5: 0.6, 6: 0.3, 6 9: 0.27, 5 1: 0.24
  EXPECT_EQ(draft.tokens, (Tokens{5, 6, 9, 1}));
  EXPECT_EQ(draft.parents, (Parents{-1, -1, 1, 0}));
  tree.choose(100, true, draft);
  EXPECT_EQ(draft.size(), 7);
}

// The drawn token is what the model draws, too, where it is right: it counts as the likeliest.
TEST(CandidateTree, TheDrawnTokenComesFirst) {
  CandidateTree tree;
  tree.add(-1, pick(7, {5, 6, 7, 8}, {0.6f, 0.3f, 0.05f, 0.01f}), 2, false);
  Draft draft;
  tree.choose(8, true, draft);
  EXPECT_EQ(draft.tokens, (Tokens{7, 5}));
  EXPECT_EQ(tree.nodes()[0].score, 0.6f);
}

TEST(CandidateTree, AChainHasNoParents) {
  CandidateTree tree;
  tree.add(-1, pick(5, {5, 6, 7, 8}, {0.6f, 0.3f, 0.05f, 0.01f}), 1, false);
  tree.add(0, pick(1, {1, 2, 3, 4}, {0.4f, 0.1f, 0, 0}), 1, false);
  Draft draft;
  tree.choose(8, false, draft);
  EXPECT_EQ(draft.tokens, (Tokens{5, 1}));
  EXPECT_TRUE(draft.parents.empty());
}

// What is assumed depends on place and rank alone, and children are never above their parents.
TEST(CandidateTree, AStaticTreeHasTheSameShape) {
  Parents shape;
  for (const float first : {0.9f, 0.3f}) {
    CandidateTree tree;
    int64_t level = 0, end = tree.add(-1, pick(1, {1, 2, 3, 4}, {first, 0.2f, 0.1f, 0.05f}), 4, true);
    for (int64_t last = end; level < last; ++level)
      end += tree.add(level, pick(5, {5, 6, 7, 8}, {0.2f, 0.2f, first / 9, 0.01f}), 4, true);
    for (const CandidateTree::Node& node : tree.nodes()) {
      if (node.parent < 0) continue;
      EXPECT_LT(node.score, tree.nodes()[static_cast<size_t>(node.parent)].score);
    }
    Draft draft;
    tree.choose(9, true, draft);
    EXPECT_EQ(draft.size(), 9);
    if (shape.empty()) shape = draft.parents;
    EXPECT_EQ(draft.parents, shape);
  }
}

}  // namespace
}  // namespace millrace
