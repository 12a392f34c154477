#include "schedule/planner.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

Sequence stream(RequestId id, int64_t prompt, int64_t generated, int64_t computed, int64_t max_total = 1000) {
  Sequence s;
  s.id = id;
  s.tokens.assign(static_cast<size_t>(prompt + generated), 1);
  s.prompt_tokens = prompt;
  s.computed = computed;
  s.max_total = max_total;
  return s;
}

TEST(Planner, DecodeComesFirstAndPromptsShareTheRest) {
  Sequence a = stream(1, 100, 0, 0), b = stream(2, 8, 5, 12), c = stream(3, 50, 0, 20);
  const Sequence* running[] = {&a, &b, &c};
  StepPlan plan = plan_step(running, {.batch_tokens = 64, .outputs = 4});
  EXPECT_EQ(plan.to_string(), "2:[12+1]* 1:[0+63]");
  plan = plan_step(running, {.batch_tokens = 200, .outputs = 4});
  EXPECT_EQ(plan.to_string(), "2:[12+1]* 1:[0+100]* 3:[20+30]*");
}

TEST(Planner, AFullOutputBudgetHoldsBackTheLastToken) {
  Sequence a = stream(1, 10, 0, 0), b = stream(2, 10, 0, 0);
  const Sequence* running[] = {&a, &b};
  EXPECT_EQ(plan_step(running, {.batch_tokens = 64, .outputs = 1}).to_string(), "1:[0+10]* 2:[0+9]");
}

TEST(Planner, AdmissionReservesForTheWholeStreamInOrder) {
  Sequence a = stream(1, 10, 0, 0, 64), b = stream(2, 10, 0, 0, 33), c = stream(3, 10, 0, 0, 1);
  a.reserved_blocks = 4;
  const Sequence* running[] = {&a};
  const Sequence* waiting[] = {&b, &c};
  PlannerLimits limits{.max_streams = 8, .total_blocks = 7, .block_tokens = 16};
  EXPECT_EQ(plan_admissions(waiting, running, limits), 1);  // 4 + 3 of 7; none left for c
  limits.total_blocks = 6;
  EXPECT_EQ(plan_admissions(waiting, running, limits), 0);  // b does not fit, and c does not overtake
  limits.total_blocks = 8;
  EXPECT_EQ(plan_admissions(waiting, running, limits), 2);
  limits.max_streams = 2;
  EXPECT_EQ(plan_admissions(waiting, running, limits), 1);
}

}  // namespace
}  // namespace millrace
