// Trees of drafted tokens: branches that share their beginning, the walk of an acceptance, ngram with branches.
#include "speculate/draft_tree.h"

#include <gtest/gtest.h>

#include "speculate/acceptance.h"
#include "speculate/drafter.h"

namespace millrace {
namespace {

using Tokens = std::vector<TokenId>;
using Parents = std::vector<int32_t>;

TEST(DraftTree, BranchesShareTheirFirstTokens) {
  Draft draft;
  EXPECT_EQ(add_branch(draft, Tokens{1, 2, 3}, 9), 3);
  EXPECT_TRUE(draft.is_chain(3));
  EXPECT_EQ(add_branch(draft, Tokens{1, 4}, 9), 1);
  EXPECT_EQ(add_branch(draft, Tokens{1, 2, 3}, 9), 0);
  EXPECT_EQ(add_branch(draft, Tokens{3, 2}, 9), 2);
  EXPECT_EQ(add_branch(draft, Tokens{1, 4, 5, 6, 7, 8}, 8), 2) << "up to the most";
  EXPECT_EQ(draft.tokens, (Tokens{1, 2, 3, 4, 3, 2, 5, 6}));
  EXPECT_EQ(draft.parents, (Parents{-1, 0, 1, 0, -1, 4, 3, 6}));
  EXPECT_TRUE(draft.is_chain(3));
  EXPECT_FALSE(draft.is_chain(4));
  EXPECT_TRUE(has_branch(draft, Tokens{1, 4, 5}));
  EXPECT_FALSE(has_branch(draft, Tokens{2}));
}

TEST(DraftTree, TheChildThatWasChosenIsKept) {
  Draft draft;
  draft.tokens = {5, 6, 5, 7, 6, 7};
  draft.parents = {-1, -1, 1, 1, 3, 4};
  const auto next = [&](int64_t at, TokenId sampled, int64_t count = 6) {
    return kept_child(draft, at, count, sampled);
  };
  EXPECT_EQ(next(-1, 5), 0);
  EXPECT_EQ(next(-1, 6), 1);
  EXPECT_EQ(next(-1, 7), -1);
  EXPECT_EQ(next(1, 5), 2);
  EXPECT_EQ(next(1, 7), 3);
  EXPECT_EQ(next(3, 6), 4);
  EXPECT_EQ(next(3, 6, 4), -1) << "did not run";
  EXPECT_EQ(next(0, 7), -1);
  draft.probes = 1;
  EXPECT_EQ(next(4, 7), -1) << "a probe";
  EXPECT_EQ(next(3, 6), 4);
  draft.parents.clear();  // a chain
  draft.probes = 0;
  EXPECT_EQ(next(-1, 5), 0);
  EXPECT_EQ(next(-1, 6), -1);
  EXPECT_EQ(next(1, 5), 2);
}

// Branches that were drawn independently may be equal: they are one path.
TEST(DraftTree, EqualPathsShareTheirChildren) {
  Draft draft;
  draft.tokens = {5, 5, 6, 7, 8, 7, 1, 2, 3};
  draft.parents = {-1, -1, -1, 0, 1, 2, 3, 4, 5};
  EXPECT_TRUE(same_path(draft, 0, 1));
  EXPECT_FALSE(same_path(draft, 3, 5));
  EXPECT_FALSE(same_path(draft, 0, -1));
  EXPECT_EQ(kept_child(draft, -1, 9, 5), 0);
  EXPECT_EQ(kept_child(draft, 0, 9, 7), 3);
  EXPECT_EQ(kept_child(draft, 0, 9, 8), 4) << "follows the other 5";
  EXPECT_EQ(kept_child(draft, 4, 9, 2), 7);
  std::vector<int64_t> visited;
  visit_children(draft, -1, 9, [&](int64_t i) { return visited.push_back(i), true; });
  EXPECT_EQ(visited, (std::vector<int64_t>{0, 1, 2}));
}

TEST(DraftTree, FewerTokensMayBeKeptThanRan) {
  Draft draft;
  draft.tokens = {1, 2, 3, 4, 5};
  draft.probes = 3;
  EXPECT_EQ(draft.candidates(5), 2);
  EXPECT_EQ(draft.candidates(3), 2);
  EXPECT_EQ(draft.candidates(1), 1);
}

Draft ngram_tree(const char* text, const Tokens& tokens, int64_t most = 64) {
  const auto drafter = make_drafter(text).value();
  EXPECT_TRUE(drafter->trees());
  Sequence stream;
  stream.tokens = tokens;
  Draft draft;
  drafter->texts.front().drafter->propose(stream, most, draft);
  return draft;
}

TEST(DraftTree, NgramBranchesAreTheContinuationsOfMatchesBestFirst) {
  const Tokens tokens = {9, 1, 2, 5, 6, 3, 1, 2, 5, 7, 1, 2, 8, 9, 1, 2};
  const Draft draft = ngram_tree("ngram:n=3,min=2,k=2,branches=3", tokens);  // 9 1 2 | 1 2 | 1 2, which shares the 5
  EXPECT_EQ(draft.tokens, (Tokens{5, 6, 8, 9, 7}));
  EXPECT_EQ(draft.parents, (Parents{-1, 0, -1, 2, 0}));
  EXPECT_EQ(ngram_tree("ngram:n=3,min=2,k=2,branches=2", tokens).tokens, (Tokens{5, 6, 8, 9}));
  EXPECT_EQ(ngram_tree("ngram:n=3,min=2,k=2,branches=9", tokens).tokens, draft.tokens) << "no more matches";
  EXPECT_EQ(ngram_tree("ngram:n=3,min=2,k=2,branches=3", tokens, 3).tokens, (Tokens{5, 6, 8}));
  EXPECT_EQ(ngram_tree("ngram:branches=2", {1, 2, 3}).size(), 0);
  EXPECT_EQ(ngram_tree("ngram:min=1,branches=3,k=2", {4, 4, 4, 4, 4}).tokens, (Tokens{4, 4})) << "one continuation";
}

TEST(DraftTree, LongestCountsAllBranches) {
  EXPECT_EQ(make_drafter("ngram:k=7,branches=3").value()->longest(), 21);
  EXPECT_TRUE(make_drafter("ngram:branches=2").value()->trees());
  EXPECT_FALSE(make_drafter("ngram").value()->trees());
  EXPECT_FALSE(make_drafter("x").ok());
  EXPECT_EQ(make_drafter("ngram:k=13,branches=5").error().message,
            "drafter ngram: branches: 5 branches of k=13 tokens are 65; a tree has at most 64");
  EXPECT_TRUE(make_drafter("ngram:k=16,branches=4").ok());
}

}  // namespace
}  // namespace millrace
