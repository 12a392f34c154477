#include "server/wait_estimate.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// 100 prompt tokens in a second, then 10 tokens of half a second.
constexpr RequestTimings kTimings = {.prompt_tokens = 120, .cached_tokens = 20, .generated_tokens = 10, .prefill_seconds = 1, .decode_seconds = 4.5};

TEST(WaitEstimate, KnowsNothingAtFirst) {
  auto estimate = std::make_shared<WaitEstimate>(2);
  EXPECT_EQ(estimate->first_token_seconds(1000), 0);
  EXPECT_EQ(estimate->place_seconds(), 0);
}

TEST(WaitEstimate, PromptsBeforeItAndItsOwn) {
  auto estimate = std::make_shared<WaitEstimate>(2);
  WaitEntry(estimate, 120, 1).answer_done(kTimings);
  EXPECT_DOUBLE_EQ(estimate->first_token_seconds(200), 2 + 0.5);
  WaitEntry other(estimate, 300, 1);
  EXPECT_DOUBLE_EQ(estimate->first_token_seconds(200), 5 + 0.5);
  other.prompt_done(300);
  EXPECT_DOUBLE_EQ(estimate->first_token_seconds(200), 2 + 0.5);
}

TEST(WaitEstimate, PlacesGiveWayAfterAMeanAnswer) {
  auto estimate = std::make_shared<WaitEstimate>(2);
  WaitEntry(estimate, 120, 1).answer_done(kTimings);
  {
    WaitEntry one(estimate, 0, 1);
    EXPECT_EQ(estimate->place_seconds(), 0);
    WaitEntry two(estimate, 0, 3);
    EXPECT_DOUBLE_EQ(estimate->place_seconds(), 3 * 10 * 0.5 / 2);
    two.answer_done(kTimings);
    EXPECT_DOUBLE_EQ(estimate->place_seconds(), 2 * 10 * 0.5 / 2);
  }
  EXPECT_EQ(estimate->place_seconds(), 0);
}

TEST(WaitEstimate, WhatNeverRanTeachesNothing) {
  auto estimate = std::make_shared<WaitEstimate>(1);
  WaitEntry(estimate, 50, 1).answer_done({});
  EXPECT_EQ(estimate->first_token_seconds(10), 0);
}

}  // namespace
}  // namespace millrace
