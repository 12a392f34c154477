// The tree over the matrix of likeliest tokens, what updates it, and who sees it.
#include <gtest/gtest.h>

#include "speculate/drafter.h"

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Drafter> recycler(const std::string& options, int64_t vocab = 50) {
  auto drafter = make_drafter("token_recycling:" + options);
  EXPECT_TRUE(drafter.ok());
  (*drafter)->begin(vocab);
  return std::move(*drafter);
}

Sequence stream_of(RequestId id, Ids tokens, bool caches = true, uint64_t scope = 1) {
  Sequence stream;
  stream.id = id;
  stream.tokens = std::move(tokens);
  stream.prefix.caches = caches;
  stream.prefix.scope = scope;
  return stream;
}

Draft draft_of(Drafter& drafter, const Sequence& stream, int64_t most = 64) {
  Draft out;
  drafter.texts.front().drafter->propose(stream, most, out);
  return out;
}

TEST(TokenRecycling, TheTreeFollowsTheCandidatesAndTheFirstOnesGoDeepest) {
  auto drafter = recycler("k=2,tokens=6,depth=3");
  EXPECT_EQ(drafter->longest(), 6);
  EXPECT_EQ(drafter->learns(), 2);
  EXPECT_EQ(drafter->shared_bytes(50), 2 * 50 * 2 * 4);
  const Sequence stream = stream_of(1, {9, 1});
  EXPECT_EQ(draft_of(*drafter, stream).size(), 0) << "nothing is known";
  drafter->texts.front().learner->learn(stream, 1, Ids{2, 3});
  drafter->texts.front().learner->learn(stream, 2, Ids{4, 5});
  drafter->texts.front().learner->learn(stream, 3, Ids{6, 7});
  EXPECT_EQ(draft_of(*drafter, stream).tokens, (Ids{2, 4, 3, 5, 6}));
  EXPECT_EQ(draft_of(*drafter, stream).parents, (std::vector<int32_t>{-1, 0, -1, 0, 2}));
  drafter->texts.front().learner->learn(stream, 4, Ids{8, -1});
  EXPECT_EQ(draft_of(*drafter, stream).tokens, (Ids{2, 4, 8, 3, 5, 6})) << "0.6^3 is heavier than rank 1";
  EXPECT_EQ(draft_of(*drafter, stream, 2).tokens, (Ids{2, 4}));
  drafter->texts.front().learner->learn(stream, 1, Ids{3, 2});
  EXPECT_EQ(draft_of(*drafter, stream).tokens.front(), 3) << "the latest row counts";
}

TEST(TokenRecycling, TokensOutsideTheVocabularyAreIgnored) {
  auto drafter = recycler("k=1,tokens=2", 5);
  drafter->texts.front().learner->learn(stream_of(1, {1}), 7, Ids{1});
  drafter->texts.front().learner->learn(stream_of(1, {1}), -1, Ids{1});
  EXPECT_EQ(draft_of(*drafter, stream_of(1, {7})).size(), 0);
}

TEST(TokenRecycling, StreamsOfOtherScopesSeeNothing) {
  auto drafter = recycler("k=1,tokens=1,tables=2");
  drafter->texts.front().learner->learn(stream_of(1, {1}), 1, Ids{2});
  EXPECT_EQ(draft_of(*drafter, stream_of(2, {1})).tokens, Ids{2}) << "the same scope";
  EXPECT_EQ(draft_of(*drafter, stream_of(3, {1}, true, 2)).size(), 0);
  EXPECT_EQ(draft_of(*drafter, stream_of(4, {1}, false)).size(), 0) << "without prefix cache: the stream alone";
  drafter->texts.front().learner->learn(stream_of(5, {1}, true, 3), 1, Ids{9});
  EXPECT_EQ(draft_of(*drafter, stream_of(2, {1})).tokens, Ids{2}) << "tables in use are not taken over";
  for (int i = 0; i < 300; ++i) draft_of(*drafter, stream_of(2, {1}));
  drafter->texts.front().learner->learn(stream_of(5, {1}, true, 3), 1, Ids{9});
  EXPECT_EQ(draft_of(*drafter, stream_of(5, {1}, true, 3)).tokens, Ids{9}) << "unused ones are";
  EXPECT_EQ(draft_of(*drafter, stream_of(2, {1})).tokens, Ids{2});
}

}  // namespace
}  // namespace millrace
