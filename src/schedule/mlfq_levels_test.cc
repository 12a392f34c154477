// Levels of the skip-join multi-level feedback queue, in whole seconds: level i has a quantum of 2^i seconds. A
// stream's remaining quantum is observed through gain_seconds against a stream unknown to the policy, whose level is
// the first.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// Half a second per token, plus `key` for each token of the stream.
struct HalfSecondTokens final : CostModel {
  double key = 0;
  double step_seconds(const StepShape& shape) const override {
    return 0.5 * static_cast<double>(shape.tokens) + key * static_cast<double>(shape.keys);
  }
  double swap_seconds(int64_t) const override { return 0; }
};

class SkipJoinLevels : public ::testing::Test {
 protected:
  SkipJoinLevels() : harness("skip_join_mlfq:quantum_ms=1000,levels=4,starve_ms=16000") {
    harness.cost = &cost;
    unknown.id = 1'000'000;
  }

  SchedulerPolicy& policy() { return harness.planner->policy(); }
  void look() {
    std::vector<const Sequence*> queue;
    policy().rank(queue, harness.view());
  }
  void at_second(int64_t second) { harness.now_ns = second * 1'000'000'000; }
  double left(const Sequence& stream) { return policy().gain_seconds(stream, unknown) + 1; }
  // A step of one token, charged half a second.
  void decode(const Sequence& stream, int times = 1) {
    for (int i = 0; i < times; ++i) harness.ran(stream, 1, true, 100);
  }

  PlannerHarness harness;
  HalfSecondTokens cost;
  Sequence unknown;
};

TEST_F(SkipJoinLevels, JoinsTheFirstLevelThatHoldsItsPrompt) {
  for (auto [tokens, quantum] :
       {std::pair{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 4}, {8, 4}, {9, 8}, {16, 8}, {17, 8}, {1000, 8}}) {
    harness.clear();
    Sequence& stream = harness.wait(static_cast<RequestId>(100 + tokens), tokens);
    look();
    EXPECT_EQ(left(stream), quantum) << tokens;
  }
  EXPECT_EQ(policy().gain_seconds(unknown, unknown), 0);
}

TEST_F(SkipJoinLevels, GainIsTheVictimsRemainingQuantumMinusTheNewStreams) {
  Sequence &longer = harness.run(1, 16, 0, 0), &middle = harness.wait(2, 4);
  look();
  EXPECT_EQ(policy().gain_seconds(longer, middle), 8 - 2);
  EXPECT_EQ(policy().gain_seconds(middle, longer), 2 - 8);
  decode(longer, 3);
  EXPECT_EQ(policy().gain_seconds(longer, middle), 8 - 1.5 - 2);
}

TEST_F(SkipJoinLevels, WithoutACostModelAllJoinTheFirstLevelAndStepsCountInFull) {
  harness.cost = nullptr;
  Sequence& stream = harness.run(1, 1000, 0, 0);
  look();
  EXPECT_EQ(left(stream), 1);
  harness.ran(stream, 1, true, 0.75);
  EXPECT_EQ(left(stream), 0.25);
}

TEST_F(SkipJoinLevels, UsedUpQuantumDemotesByOneLevel) {
  Sequence& stream = harness.run(1, 1, 1, 1);
  look();
  for (double expected : {0.5, 2.0, 1.5, 1.0, 0.5, 4.0}) {
    decode(stream);
    EXPECT_EQ(left(stream), expected);
  }
  decode(stream, 8);
  EXPECT_EQ(left(stream), 8);
  decode(stream, 20);
  EXPECT_EQ(left(stream), 8 - 10) << "there is no level below the last";
  policy().observe({ScheduleEvent::Kind::left, &stream});
  EXPECT_EQ(left(stream), 1) << "forgotten";
}

TEST_F(SkipJoinLevels, ChunkIsChargedAsIfItRanAlone) {
  cost.key = 1.0 / 64;
  Sequence& stream = harness.run(1, 40, 0, 0);
  look();
  stream.computed = 4;
  harness.ran(stream, 4, false, 100);  // tokens 0 to 3
  EXPECT_EQ(left(stream), 8 - (2 + 4.0 / 64));
  stream.computed = 10;
  harness.ran(stream, 2, false, 100);  // tokens 8 and 9, after eight others
  EXPECT_EQ(left(stream), 8 - (2 + 4.0 / 64) - (1 + 10.0 / 64));
  harness.ran(stream, 2, false, 0.25);
  EXPECT_EQ(left(stream), 8 - (2 + 4.0 / 64) - (1 + 10.0 / 64) - 0.25) << "at most the step's duration";
}

TEST_F(SkipJoinLevels, StarvedStreamsReturnToTheTop) {
  at_second(1);
  Sequence &first = harness.run(1, 4, 0, 0), &second = harness.wait(2, 2);  // second and first level
  look();
  decode(first);
  harness.ran(second, 1, true, 0.25);
  at_second(2);
  look();  // both ran
  EXPECT_EQ(left(first), 1.5);
  at_second(18);
  look();
  EXPECT_EQ(left(first), 1.5) << "starvation requires more than sixteen seconds";
  harness.now_ns += 1000;
  look();
  EXPECT_EQ(left(first), 1) << "the first level's whole quantum";
  EXPECT_EQ(left(second), 0.75) << "there already";
  decode(first, 2);
  EXPECT_EQ(left(first), 2);
  at_second(30);
  look();  // ran
  at_second(40);
  look();
  EXPECT_EQ(left(first), 2) << "ten seconds since it ran";
}

TEST_F(SkipJoinLevels, QueueIsOrderedByLevelThenArrival) {
  for (auto [id, tokens] : {std::pair{1, 20}, {2, 3}, {3, 1}, {4, 4}, {5, 2}})
    harness.wait(static_cast<RequestId>(id), tokens);
  std::vector<const Sequence*> queue = harness.waiting;
  policy().rank(queue, harness.view());
  std::string order;
  for (const Sequence* stream : queue) order += fmt::format("{} ", stream->id);
  EXPECT_EQ(order, "3 5 2 4 1 ");
}

}  // namespace
}  // namespace millrace
