#include "server/generation/wait_estimate.h"

#include <gtest/gtest.h>

#include "schedule/cost_model.h"

namespace millrace {
namespace {

// 100 prompt tokens in a second, then 10 tokens of half a second.
constexpr RequestTimings kTimings = {
    .prompt_tokens = 120, .cached_tokens = 20, .generated_tokens = 10, .prefill_seconds = 1, .decode_seconds = 4.5};

TEST(WaitEstimate, StartsWithoutData) {
  auto estimate = std::make_shared<WaitEstimate>(2);
  EXPECT_EQ(estimate->first_token_seconds(1000), 0);
  EXPECT_EQ(estimate->place_seconds(), 0);
}

TEST(WaitEstimate, CountsOtherPromptsAndItsOwn) {
  auto estimate = std::make_shared<WaitEstimate>(2);
  WaitEntry(estimate, 120, 1).answer_done(kTimings);
  EXPECT_DOUBLE_EQ(estimate->first_token_seconds(200), 2 + 0.5);
  WaitEntry other(estimate, 300, 1);
  EXPECT_DOUBLE_EQ(estimate->first_token_seconds(200), 5 + 0.5);
  other.prompt_done(300);
  EXPECT_DOUBLE_EQ(estimate->first_token_seconds(200), 2 + 0.5);
}

TEST(WaitEstimate, PlacesBecomeFreeAfterMeanAnswer) {
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

TEST(WaitEstimate, IgnoresRequestsThatNeverRan) {
  auto estimate = std::make_shared<WaitEstimate>(1);
  WaitEntry(estimate, 50, 1).answer_done({});
  EXPECT_EQ(estimate->first_token_seconds(10), 0);
}

// A step takes one second per token.
class SecondEach final : public CostModel {
 public:
  double step_seconds(const StepShape& shape) const override { return static_cast<double>(shape.tokens); }
  double swap_seconds(int64_t) const override { return 0; }
};

TEST(WaitEstimate, UsesCostModelSpeeds) {
  auto estimate = std::make_shared<WaitEstimate>(2, std::make_unique<SecondEach>(), 64);
  EXPECT_DOUBLE_EQ(estimate->first_token_seconds(100), 100 + 1);
  WaitEntry one(estimate, 300, 1);
  EXPECT_DOUBLE_EQ(estimate->first_token_seconds(100), 300 + 100 + 2);
  one.prompt_done(300);
  WaitEntry two(estimate, 0, 1);
  EXPECT_EQ(estimate->first_token_seconds(100), 0) << "the length of answers is not known yet";
  one.answer_done(kTimings);
  EXPECT_DOUBLE_EQ(estimate->first_token_seconds(100), 100 + 2) << "measured speeds are not used";
  WaitEntry three(estimate, 0, 1);
  EXPECT_DOUBLE_EQ(estimate->place_seconds(), 1 * 10 * 2 / 2);
}

TEST(WaitEstimate, FallsBackToMeasurementsWithoutCostModelFile) {
  auto estimate = WaitEstimate::of_engine(2, "/nonexistent", 64);
  EXPECT_EQ(estimate->first_token_seconds(10), 0);
}

}  // namespace
}  // namespace millrace
