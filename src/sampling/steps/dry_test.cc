// DRY at its limits: breakers at the edge of the window, histories that are much longer than it, and linear time.
#include <gtest/gtest.h>

#include <cmath>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;

SamplerSetup setup_of(int64_t window, int64_t allowed, std::vector<Ids> breakers = {}) {
  SamplerSetup setup;
  setup.options.dry_multiplier = 1;
  setup.options.dry_base = 2;
  setup.options.dry_window = window;
  setup.options.dry_allowed_length = allowed;
  setup.dry_breakers = std::move(breakers);
  return setup;
}

std::vector<float> penalties(const SamplerSetup& setup, const Ids& history) {
  const auto step = make_dry(setup);
  for (TokenId token : history) step->accept(token);
  std::vector<float> logits(6, 0);
  SamplingRow row;
  row.begin(logits, 0, 0);
  step->apply(row);
  return logits;
}

TEST(Dry, BreakerThatFillsTheWindowStillBreaks) {
  EXPECT_EQ(penalties(setup_of(-1, 1), {1, 1})[1], -1);
  EXPECT_EQ(penalties(setup_of(-1, 1, {{1, 1}}), {1, 1})[1], 0);
  // Only "2" follows the breaker 1 2 1: a repeat of one token.
  EXPECT_EQ(penalties(setup_of(-1, 1), {1, 2, 1, 2})[1], -2);
  EXPECT_EQ(penalties(setup_of(-1, 1, {{1, 2, 1}}), {1, 2, 1, 2})[1], -1);
}

TEST(Dry, OnlyTheWindowOfALongHistoryCounts) {
  const auto setup = setup_of(9, 2);
  const Ids end = {1, 2, 3, 4, 0, 1, 2, 3};
  const auto expected = penalties(setup, end);
  EXPECT_EQ(expected[4], -2);
  for (size_t before : {1, 1000, 1034, 1035, 1042, 1043, 3000, 5000}) {
    Ids history(before, 5);
    history.insert(history.end(), end.begin(), end.end());
    EXPECT_EQ(penalties(setup, history), expected) << before;
  }
}

TEST(Dry, TakesLinearTimeForARepeatOfAnyLength) {
  const auto logits = penalties(setup_of(-1, 2), Ids(200'000, 1));  // twenty billion comparisons if it were quadratic
  EXPECT_EQ(logits[1], -1e30f);
  EXPECT_EQ(logits[0], 0);
}

}  // namespace
}  // namespace millrace
