#include "schedule/decode_times.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

class PlainCost final : public CostModel {
 public:
  double step_seconds(const StepShape& shape) const override { return 1 + 0.1 * static_cast<double>(shape.tokens); }
  double swap_seconds(int64_t) const override { return 0; }
};

TEST(DecodeTimes, BeginWithTheCostModel) {
  const DecodeTimes times;
  EXPECT_DOUBLE_EQ(times.seconds(1, PlainCost()), 1.1);
  EXPECT_DOUBLE_EQ(times.seconds(500, PlainCost()), 51);
}

TEST(DecodeTimes, LearnEachNumberOfTokens) {
  DecodeTimes times;
  const PlainCost cost;
  for (int i = 0; i < 100; ++i)
    for (const auto& [tokens, seconds] : {std::pair(1, 2.0), std::pair(4, 5.0), std::pair(5, 5.1)})
      times.observe(tokens, seconds, cost);
  EXPECT_NEAR(times.seconds(1, cost), 2, 0.05);
  EXPECT_NEAR(times.seconds(4, cost), 5, 0.1);
  EXPECT_NEAR(times.seconds(5, cost), 5.1, 0.05);
  EXPECT_NEAR(times.seconds(2, cost), 3, 0.1);     // between its neighbours
  EXPECT_NEAR(times.seconds(15, cost), 6.1, 0.1);  // grows as the cost model does
  EXPECT_NEAR(times.seconds(400, cost), 5.1 + 39.5, 1);
}

TEST(DecodeTimes, AStallOfTheMachineIsForgotten) {
  DecodeTimes times;
  const PlainCost cost;
  for (int i = 0; i < 50; ++i) times.observe(1, 1, cost);
  times.observe(2, 50, cost);
  EXPECT_NEAR(times.seconds(2, cost), 3.3, 1e-9);  // counts as three times the expected one
  times.observe(1, 1000, cost);
  EXPECT_LT(times.seconds(1, cost), 1.2);
  for (int i = 0; i < 1100; ++i) times.observe(1, 1, cost);
  EXPECT_NEAR(times.seconds(2, cost), 1.1, 0.01);  // is tried again
}

}  // namespace
}  // namespace millrace
