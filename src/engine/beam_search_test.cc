// BeamSearch by itself, on candidates whose sums can be added up by hand.
#include "engine/beam_search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using Likely = std::vector<std::vector<TokenLogprob>>;  // of each live beam

// The surviving beams as FROM:TOKEN.
std::string survivors(BeamSearch& search, const Likely& likely) {
  std::string out;
  for (const BeamSearch::Next& next : search.advance(likely))
    out += fmt::format("{}{}:{}", out.empty() ? "" : " ", next.from, next.token);
  return out;
}

// The answers as TOKENS = SCORE, with a full stop where an end token ended it.
std::string answers(const BeamSearch& search, int64_t count) {
  std::string out;
  for (const BeamAnswer& answer : search.best(count)) {
    out += out.empty() ? "" : ", ";
    for (const BeamToken& token : answer.tokens) out += fmt::format("{} ", token.chosen.token);
    out += fmt::format("= {:.4g}{}", answer.score, answer.ended ? "." : "");
  }
  return out;
}

TEST(BeamChoice, CandidatesSufficeWhereEveryEndRanksFirst) {
  const auto wanted = [](int64_t width, std::vector<TokenId> ends, int64_t kept_top = 0) {
    return BeamSearch({.width = width, .end_tokens = std::move(ends)}, kept_top).candidates_wanted();
  };
  EXPECT_EQ(wanted(3, {}), 6);
  EXPECT_EQ(wanted(3, {9}), 7);
  EXPECT_EQ(wanted(3, {8, 9}), 11);
  EXPECT_EQ(wanted(3, {8, 9}, 11), 11);
  EXPECT_EQ(wanted(3, {8, 9}, 20), 20);
  EXPECT_EQ(wanted(1, {}, -1), 2);
}

TEST(BeamChoice, TheLikeliestSumsSurvive) {
  BeamSearch search({.width = 2, .max_tokens = 10});
  EXPECT_EQ(search.live(), 1);
  EXPECT_EQ(answers(search, 2), "= 0") << "no token yet";
  EXPECT_EQ(survivors(search, {{{1, -0.5f}, {2, -1.0f}, {3, -3.0f}}}), "0:1 0:2");
  EXPECT_EQ(search.live(), 2);
  EXPECT_EQ(survivors(search, {{{4, -2.0f}, {5, -3.0f}}, {{6, -0.25f}, {7, -4.0f}}}), "1:6 0:4");
  EXPECT_EQ(answers(search, 2), "2 6 = -0.625, 1 4 = -1.25");
  EXPECT_EQ(answers(search, 1), "2 6 = -0.625");
  // Equal sums: the better beam first, and then the order of its candidates.
  EXPECT_EQ(survivors(search, {{{6, -2.25f}, {5, -2.25f}}, {{4, -1.0f}}}), "0:6 0:5");
}

// An end counts only if it is among the first `width` choices.
TEST(BeamChoice, EndsAreAnswers) {
  const Likely second = {{{9, -0.125f}, {4, -0.25f}}, {{9, -0.25f}, {5, -0.5f}}};
  for (const EarlyStopping early : {EarlyStopping::no, EarlyStopping::yes, EarlyStopping::never}) {
    BeamSearch search({.width = 2, .early_stopping = early, .max_tokens = 10, .end_tokens = {9}});
    EXPECT_EQ(survivors(search, {{{9, -0.125f}, {1, -0.5f}, {2, -1.0f}, {3, -2.0f}}}), "0:1 0:2");
    EXPECT_EQ(answers(search, 2), "9 = -0.125., 1 = -0.5");
    // -0.625 for 1 9, then -0.75 for 1 4, and only then 2 9. The worst answer, -0.3125, is as good as the best beam
    // could be now, and worse than the same sum over ten tokens.
    EXPECT_EQ(survivors(search, second), early == EarlyStopping::never ? "0:4 1:5" : "");
    EXPECT_EQ(search.live(), early == EarlyStopping::never ? 2 : 0);
    EXPECT_EQ(answers(search, 2), "9 = -0.125., 1 9 = -0.3125.");
  }
}

// best() ranks beams that have not ended beside the answers, as when the search is cut off; a better beam displaces a
// worse answer.
TEST(BeamChoice, OnlyTheBestAnswersAreKept) {
  BeamSearch search({.width = 2, .max_tokens = 10, .end_tokens = {9}});
  EXPECT_EQ(survivors(search, {{{1, -0.125f}, {9, -4.0f}, {2, -5.0f}}}), "0:1 0:2");
  EXPECT_EQ(answers(search, 2), "1 = -0.125, 9 = -4.");
  EXPECT_EQ(survivors(search, {{{3, -0.125f}, {9, -7.0f}}, {{4, -0.5f}}}), "0:3 1:4");
  EXPECT_EQ(answers(search, 2), "1 3 = -0.125, 2 4 = -2.75");
  EXPECT_EQ(survivors(search, {{{9, -0.125f}, {5, -0.25f}}, {{9, -0.25f}, {6, -9.0f}}}), "0:5 1:6");
  EXPECT_EQ(answers(search, 2), "1 3 9 = -0.125., 1 3 5 = -0.1667");
}

TEST(BeamChoice, TheWorseAnswerIsReplaced) {
  BeamSearch search({.width = 1, .early_stopping = EarlyStopping::never, .max_tokens = 10, .end_tokens = {9}});
  EXPECT_EQ(survivors(search, {{{9, -4.0f}, {1, -4.5f}}}), "0:1");
  EXPECT_EQ(answers(search, 1), "9 = -4.");
  EXPECT_EQ(survivors(search, {{{9, -0.5f}, {2, -1.0f}}}), "0:2");
  EXPECT_EQ(answers(search, 1), "1 9 = -2.5.");
}

TEST(BeamChoice, EndsAreIgnoredBeforeTheLeastLength) {
  BeamSearch search({.width = 1, .max_tokens = 10, .min_tokens = 1, .end_tokens = {8, 9}});
  EXPECT_EQ(survivors(search, {{{9, -0.125f}, {8, -0.25f}, {1, -0.5f}}}), "0:1");
  EXPECT_EQ(answers(search, 1), "1 = -0.5");
  // Both ends rank first, and only the first one is an answer.
  EXPECT_EQ(survivors(search, {{{8, -0.125f}, {9, -0.25f}, {2, -8.0f}}}), "");
  EXPECT_EQ(answers(search, 1), "1 8 = -0.3125.");
  BeamSearch only({.width = 1, .max_tokens = 10, .min_tokens = 1, .end_tokens = {9}});
  EXPECT_EQ(survivors(only, {{{9, -0.125f}}}), "") << "nothing else may follow";
  EXPECT_EQ(only.live(), 0);
  EXPECT_EQ(answers(only, 1), "");
}

TEST(BeamChoice, BehindManyEndsABeamGoesOn) {
  BeamSearch search({.width = 1, .early_stopping = EarlyStopping::never, .max_tokens = 100, .end_tokens = {8, 9}});
  EXPECT_EQ(survivors(search, {{{8, -1.0f}, {9, -1.5f}, {1, -2.0f}}}), "0:1");
  EXPECT_EQ(answers(search, 1), "8 = -1.");
}

TEST(BeamChoice, ScoresAreDividedByThePenalizedLength) {
  for (const auto& [penalty, score] : {std::pair(0.0, "-3"), {1.0, "-1.5"}, {2.0, "-0.75"}, {-1.0, "-6"}}) {
    BeamSearch search({.width = 1, .length_penalty = penalty, .max_tokens = 10});
    survivors(search, {{{1, -1.0f}, {2, -9.0f}}});
    survivors(search, {{{3, -2.0f}, {4, -9.0f}}});
    EXPECT_EQ(answers(search, 1), fmt::format("1 3 = {}", score));
  }
}

TEST(BeamChoice, AlternativesAreReportedAsWanted) {
  for (const int64_t kept : {0, 1, 5}) {
    BeamSearch search({.width = 1, .max_tokens = 10}, kept);
    survivors(search, {{{1, -1.0f}, {2, -2.0f}, {3, -3.0f}}});
    const auto best = search.best(1);
    ASSERT_EQ(best.size(), 1u);
    const BeamToken& token = best[0].tokens.at(0);
    EXPECT_EQ(token.chosen.logprob, -1.0f);
    ASSERT_EQ(std::ssize(token.top), std::min<int64_t>(kept, 3));
    if (kept == 5) {
      EXPECT_EQ(token.top[2].token, 3);
    }
  }
}

}  // namespace
}  // namespace millrace
