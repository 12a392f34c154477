// How much of each draft runs, and what the engine knows of a stream's drafts.
#include "speculate/draft_length.h"

#include <gtest/gtest.h>

#include <cmath>

#include "speculate/stream_drafts.h"

namespace millrace {
namespace {

std::vector<int64_t> chosen_of(const DraftLengths& lengths) {
  std::vector<int64_t> out;
  for (const DraftOffer& offer : lengths.offers()) out.push_back(offer.chosen);
  return out;
}

auto geometric(double share) {
  return [share](int64_t place) { return std::pow(share, static_cast<double>(place + 1)); };
}

// The best of all combinations of lengths, by trying them.
double best_rate(std::span<const std::pair<int64_t, double>> drafts, int64_t streams, double per_token, double pass) {
  double best = static_cast<double>(streams);
  std::vector<int64_t> lengths(drafts.size(), 0);
  for (;;) {
    double kept = static_cast<double>(streams);
    int64_t tokens = 0, longest = 0;
    for (size_t i = 0; i < drafts.size(); ++i) {
      tokens += lengths[i];
      longest = std::max(longest, lengths[i]);
      for (int64_t place = 0; place < lengths[i]; ++place) kept += geometric(drafts[i].second)(place);
    }
    best = std::max(best, kept / (1 + per_token * static_cast<double>(tokens) + pass * static_cast<double>(longest)));
    size_t i = 0;
    while (i < lengths.size() && lengths[i] == drafts[i].first) lengths[i++] = 0;
    if (i == lengths.size()) return best;
    ++lengths[i];
  }
}

TEST(DraftLengths, AreTheBestOfAllCombinations) {
  const std::vector<std::pair<int64_t, double>> drafts = {{4, 0.9}, {3, 0.5}, {5, 0.7}};
  for (const double per_token : {0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.6}) {
    DraftLengths lengths;
    lengths.clear();
    for (const auto& [tokens, share] : drafts) lengths.add_chain(tokens, geometric(share));
    const auto seconds = [&](int64_t tokens, int64_t) { return 1 + per_token * static_cast<double>(tokens); };
    lengths.choose(3, 100, seconds);
    double kept = 3;
    int64_t tokens = 0;
    for (size_t i = 0; i < drafts.size(); ++i) {
      const int64_t length = lengths.offers()[i].chosen;
      ASSERT_LE(length, drafts[i].first);
      tokens += length;
      for (int64_t place = 0; place < length; ++place) kept += geometric(drafts[i].second)(place);
    }
    const double best = best_rate(drafts, 3, per_token, 0);
    if (best > 3 * 1.02)
      EXPECT_NEAR(kept / seconds(tokens, 0), best, 1e-12) << per_token;
    else
      EXPECT_EQ(tokens, 0) << per_token;
  }
}

TEST(DraftLengths, NothingRunsThatDoesNotPay) {
  DraftLengths lengths;
  lengths.add_chain(8, geometric(0.9));
  lengths.choose(1, 100, [](int64_t tokens, int64_t) { return 1 + static_cast<double>(tokens); });
  EXPECT_EQ(chosen_of(lengths), (std::vector<int64_t>{0}));
}

// The second model runs once for every token of the longest draft, so drafts of equal length share its passes.
TEST(DraftLengths, PassesOfADraftModelAreShared) {
  const auto seconds = [](int64_t, int64_t longest) { return 1 + 0.8 * static_cast<double>(longest); };
  DraftLengths alone;
  alone.add_chain(1, geometric(0.7));
  alone.choose(1, 100, seconds);
  EXPECT_EQ(chosen_of(alone), (std::vector<int64_t>{0}));
  DraftLengths together;
  for (int i = 0; i < 4; ++i) together.add_chain(1, geometric(0.95));
  together.choose(4, 100, seconds);
  EXPECT_EQ(chosen_of(together), (std::vector<int64_t>{1, 1, 1, 1}));
}

TEST(DraftLengths, RoomGoesToTheLikeliestTokens) {
  DraftLengths lengths;
  lengths.add_chain(4, geometric(0.5));
  lengths.add_chain(4, geometric(0.9));
  lengths.choose(2, 3, [](int64_t, int64_t) { return 1.0; });
  EXPECT_EQ(chosen_of(lengths), (std::vector<int64_t>{0, 3}));
}

TEST(DraftLengths, TreesRunWholeOrNotAtAll) {
  for (const auto& [per_token, chosen] : {std::pair(0.1, 6), std::pair(0.4, 0)}) {
    DraftLengths lengths;
    lengths.add_tree(6, 1.5);
    lengths.choose(1, 100, [&](int64_t tokens, int64_t) { return 1 + per_token * static_cast<double>(tokens); });
    EXPECT_EQ(chosen_of(lengths), (std::vector<int64_t>{chosen}));
  }
}

// Probes cost as much as candidates: candidates run without them where only they pay.
TEST(DraftLengths, CandidatesRunWithoutProbesThatDoNotPay) {
  const auto chosen = [](int64_t candidates, double kept, double with_probes, double per_token) {
    DraftLengths lengths;
    lengths.add_probed_tree(candidates, kept, 15, with_probes);
    lengths.choose(1, 100, [&](int64_t tokens, int64_t) { return 1 + per_token * static_cast<double>(tokens); });
    return lengths.offers()[0].chosen;
  };
  EXPECT_EQ(chosen(3, 2, 4, 0.05), 18);
  EXPECT_EQ(chosen(3, 2, 4, 0.2), 3);
  EXPECT_EQ(chosen(3, 2, 4, 0.8), 0);
  EXPECT_EQ(chosen(3, 2, 1, 0.01), 3);    // probes that bring nothing
  EXPECT_EQ(chosen(3, 0.3, 4, 0.1), 18);  // candidates that seldom do
  EXPECT_EQ(chosen(0, 0, 4, 0.1), 15);
  EXPECT_EQ(chosen(0, 0, 4, 0.3), 0);
}

// What does not pay is known, too, and runs where it is wanted.
TEST(DraftLengths, TheEstimateOfDraftsThatDoNotPay) {
  DraftLengths lengths;
  lengths.add_chain(3, geometric(0.5));
  const auto best = lengths.choose(2, 100, [](int64_t tokens, int64_t) { return 2 + static_cast<double>(tokens); });
  EXPECT_EQ(best.tokens, 1);
  EXPECT_EQ(best.yield, 1.25);
  EXPECT_EQ(best.time, 1.5);
  EXPECT_FALSE(best.pays());
  EXPECT_EQ(chosen_of(lengths), (std::vector<int64_t>{0}));
  lengths.take();
  EXPECT_EQ(chosen_of(lengths), (std::vector<int64_t>{1}));
  DraftLengths none;
  none.add_chain(3, geometric(0.001));
  EXPECT_EQ(none.choose(1, 100, [](int64_t, int64_t) { return 1.0; }).tokens, 0);
}

TEST(KeptShares, OldObservationsCountLess) {
  KeptShares shares;
  EXPECT_EQ(shares.share(0, 0.6, 2), 0.6);
  for (int i = 0; i < 100; ++i) shares.add(0, true, 0.9);
  EXPECT_NEAR(shares.share(0, 0.6, 2), (10 + 1.2) / 12, 1e-4);
  for (int i = 0; i < 10; ++i) shares.add(0, false, 0.9);
  EXPECT_LT(shares.share(0, 0.6, 2), 0.45);
  EXPECT_EQ(shares.share(1, 0.6, 2), 0.6);  // another place
  shares.fade(0);
  EXPECT_EQ(shares.share(0, 0.6, 2), 0.6);
}

// Drafts are judged by the tokens that the stream has later, however many of them have run.
TEST(DraftTrial, IsJudgedTokenByToken) {
  std::vector<std::pair<int64_t, bool>> seen;
  const auto record = [&](int64_t place, bool kept) { seen.emplace_back(place, kept); };
  Sequence stream;
  stream.tokens = {1, 2, 3};
  Draft draft;
  draft.tokens = {4, 5, 6};
  DraftTrial trial;
  trial.begin(draft, stream);
  trial.follow(stream, record);
  EXPECT_TRUE(seen.empty());
  stream.tokens.push_back(4);
  trial.follow(stream, record);
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, bool>>{{0, true}}));
  EXPECT_TRUE(trial.open());
  stream.tokens.insert(stream.tokens.end(), {5, 9, 9});
  trial.follow(stream, record);
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, bool>>{{0, true}, {1, true}, {2, false}}));
  EXPECT_FALSE(trial.open());
}

TEST(DraftTrial, FollowsTheBranchThatIsRight) {
  std::vector<std::pair<int64_t, bool>> seen;
  Sequence stream;
  stream.tokens = {1};
  Draft draft;  // 4 5, or 6 7; the last token is a probe
  draft.tokens = {4, 5, 6, 7, 8};
  draft.parents = {-1, 0, -1, 2, -1};
  draft.probes = 1;
  DraftTrial trial;
  trial.begin(draft, stream);
  stream.tokens.insert(stream.tokens.end(), {6, 7, 8});
  trial.follow(stream, [&](int64_t place, bool kept) { seen.emplace_back(place, kept); });
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, bool>>{{0, true}, {1, true}}));
  EXPECT_FALSE(trial.open());
}

}  // namespace
}  // namespace millrace
