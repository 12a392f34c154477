// Which deadlines are accepted, exact to the nanosecond: a step takes a second per token plus time for the keys it
// reads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// One second per token, plus an eighth of a second for each token of the streams.
struct SecondTokens final : CostModel {
  double step_seconds(const StepShape& shape) const override {
    return static_cast<double>(shape.tokens) + static_cast<double>(shape.keys) / 8;
  }
  double swap_seconds(int64_t) const override { return 0; }
};

constexpr int64_t kSecond = 1'000'000'000;

class DeadlineAccept : public ::testing::Test {
 protected:
  DeadlineAccept() : harness("deadline") {
    harness.cost = &cost;
    harness.now_ns = 0;
    // Its prompt takes 7 + 7/8 s; each of its 8 tokens, alone, 1 + 8/8 s.
    stream.id = 100;
    stream.prompt_tokens = 7;
    stream.tokens.assign(7, 1);
    stream.max_total = 15;
  }
  bool accepted(double seconds) {
    stream.times.deadline = harness.now_ns + static_cast<int64_t>(seconds * kSecond);
    return harness.planner->policy().accept(stream, harness.view()).ok();
  }
  // Whether `seconds` is the earliest deadline.
  void expect_least(double seconds, const char* what) {
    EXPECT_TRUE(accepted(seconds)) << what;
    EXPECT_FALSE(accepted(seconds - 1e-6)) << what;
  }

  PlannerHarness harness;
  SecondTokens cost;
  Sequence stream;
};

TEST_F(DeadlineAccept, AloneItTakesPromptAndAnswerTime) {
  expect_least(7.875 + 8 * 2, "from 0");
  harness.now_ns = 1000 * kSecond;
  expect_least(7.875 + 8 * 2, "from later on");
  stream.computed = 3;
  expect_least(4 + 7.0 / 8 + 8 * 2, "three tokens of the prompt are there");
}

TEST_F(DeadlineAccept, UsesTheClientsExpectedAnswerLength) {
  for (auto [predicted, tokens] : {std::pair{-1, 8}, {0, 0}, {1, 1}, {5, 5}, {8, 8}, {9, 8}}) {
    stream.request.predicted_tokens = predicted;
    expect_least(7.875 + tokens * 2, "predicted");
  }
}

TEST_F(DeadlineAccept, PromptsWithEarlierDeadlinesComeFirst) {
  Sequence& other = harness.wait(1, 15);
  other.times.deadline = 1;
  // Its prompt takes 15 + 15/8 s; next to it a token takes 1 + 8/8 + 1 + 16/8 s.
  expect_least(7.875 + 16.875 + 8 * 5, "waiting");
  harness.clear();
  harness.run(1, 15, 0, 0).times.deadline = 1;
  expect_least(7.875 + 16.875 + 8 * 5, "running");
  harness.streams[0]->computed = 5;
  expect_least(7.875 + 10 + 15.0 / 8 + 8 * 5, "a third of its prompt is there");
  harness.streams[0]->tokens.push_back(1);
  harness.streams[0]->computed = 15;
  expect_least(7.875 + 8 * (2 + 1 + 17.0 / 8), "it decodes: its prompt is done");
}

TEST_F(DeadlineAccept, EqualDeadlinesCountAndLaterOnesDoNot) {
  Sequence& other = harness.wait(1, 15);
  stream.times.deadline = 64 * kSecond;
  for (auto [deadline, ok] :
       {std::pair{64 * kSecond - 1, false}, {64 * kSecond, false}, {64 * kSecond + 1, true}, {int64_t{0}, true}}) {
    other.times.deadline = deadline;
    EXPECT_EQ(harness.planner->policy().accept(stream, harness.view()).ok(), ok) << deadline;
  }
}

TEST_F(DeadlineAccept, CountsOnlyAsManyStreamsAsFitInAStep) {
  for (RequestId id : {1, 2, 3}) harness.run(id, 14, 1, 14).times.deadline = 1;
  harness.limits.max_streams = 2;
  expect_least(7.875 + 8 * (2 + 3), "with one of the three");
  harness.limits.max_streams = 3;
  expect_least(7.875 + 8 * (2 + 3 + 3), "with two");
  harness.limits.max_streams = 8;
  expect_least(7.875 + 8 * (2 + 3 + 3 + 3), "with all");
}

TEST_F(DeadlineAccept, RejectionReportsTheFigures) {
  harness.wait(1, 15).times.deadline = 1;
  stream.times.deadline = 64 * kSecond;
  auto refused = harness.planner->policy().accept(stream, harness.view());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  EXPECT_EQ(
      refused.error().message,
      "deadline: 64.000 s from now cannot be met: prompts before it and its own take about 24.750 s, its answer of "
      "8 tokens about 40.000 s");
}

TEST_F(DeadlineAccept, AcceptsWithoutADeadlineOrCostModel) {
  SchedulerPolicy& policy = harness.planner->policy();
  harness.now_ns = kSecond;
  stream.times.deadline = 1;  // long past
  EXPECT_FALSE(policy.accept(stream, harness.view()).ok());
  stream.times.deadline = 0;
  EXPECT_TRUE(policy.accept(stream, harness.view()).ok());
  stream.times.deadline = 1;
  PlannerHarness lenient("deadline:refuse=false");
  lenient.cost = &cost;
  lenient.now_ns = kSecond;
  EXPECT_TRUE(lenient.planner->policy().accept(stream, lenient.view()).ok());
  harness.cost = nullptr;
  EXPECT_TRUE(policy.accept(stream, harness.view()).ok());
}

}  // namespace
}  // namespace millrace
