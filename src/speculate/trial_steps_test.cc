// How often drafts that do not seem to pay are tried, and what that costs at most.
#include "speculate/trial_steps.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

// The numbers of the first `steps` steps in which a draft of this cost is tried.
std::vector<int> tried_in(double cost, int steps) {
  TrialSteps trials;
  std::vector<int> tried;
  for (int step = 0; step < steps; ++step)
    if (trials.try_step(cost)) tried.push_back(step);
  return tried;
}

TEST(TrialSteps, CheapTrialsBeginWithEightAndAreRareBehindThem) {
  EXPECT_EQ(tried_in(0.1, 210), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 72, 137, 202}));
}

TEST(TrialSteps, DearTrialsAreTriedOnceAndAgainWhenTheyArePaid) {
  EXPECT_EQ(tried_in(20, 3500), (std::vector<int>{0, 20 * 64 + 12 * 64 + 1, 20 * 64 + 12 * 64 + 1 + 20 * 64 + 1}));
}

TEST(TrialSteps, TheirShareOfTheTimeIsBounded) {
  for (const double cost : {0.5, 1.0, 3.0, 7.5, 40.0}) {
    double spent = 0;
    for (const int step : tried_in(cost, 20'000)) {
      spent += cost;
      EXPECT_LE(spent, 8 + cost + step / 64.0) << cost;
    }
    EXPECT_GT(spent, 0) << cost;
  }
}

// What ran because it seemed to pay needs no first trials, and does not use up what declined steps have saved.
TEST(TrialSteps, StepsThatPayReplaceTheFirstTrials) {
  TrialSteps trials;
  for (int i = 0; i < 8; ++i) trials.ran();
  for (int i = 0; i < 64; ++i) EXPECT_FALSE(trials.try_step(1)) << i;
  trials.ran();
  EXPECT_TRUE(trials.try_step(1));
}

}  // namespace
}  // namespace millrace
