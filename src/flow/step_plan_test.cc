#include "flow/step_plan.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(StepPlan, RoundTripsThroughText) {
  StepPlan plan;
  plan.preempted = {{4, false}, {5, true}};
  plan.admitted = {3};
  plan.preempted_for_blocks = {{6, false}};
  plan.chunks = {{1, 57, 1, true}, {2, 9, 5, true, 4}, {3, 0, 64, false}};
  EXPECT_EQ(plan.to_string(), "preempt 4 5~; admit 3; squeeze 6; 1:[57+1]* 2:[9+5]*4 3:[0+64]");
  EXPECT_EQ(plan.tokens(), 70);
  for (int drop = 0; drop < 16; ++drop) {
    StepPlan some = plan;
    if (drop & 1) some.preempted.clear();
    if (drop & 2) some.admitted.clear();
    if (drop & 4) some.preempted_for_blocks.clear();
    if (drop & 8) some.chunks.clear();
    auto read = StepPlan::parse(some.to_string());
    ASSERT_TRUE(read.ok()) << some.to_string();
    EXPECT_EQ(*read, some);
  }
}

TEST(StepPlan, RejectsOtherText) {
  for (const char* text : {"admit;", "admit x;", "1:[0+1", "1:[0+0]", "1:[-1+1]", "preempt 1", "1:[0+1]* x",
                           "squeeze 1~~;", "1:[0+5]4", "1:[0+5]*0", "1:[0+5]*5", "1:[0+5]*x", "1:[0+5]*-1"})
    EXPECT_FALSE(StepPlan::parse(text).ok()) << text;
}

}  // namespace
}  // namespace millrace
