// Skip-join multi-level feedback queue, in whole seconds: level i has a quantum of 2^i seconds. What a stream has left
// of its quantum is seen in gain_seconds, against a stream that is unknown to the policy: its level is the first.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// Half a second a token, and `key` for each token of the stream.
struct HalfSecondTokens final : CostModel {
  double key = 0;
  double step_seconds(const StepShape& shape) const override {
    return 0.5 * static_cast<double>(shape.tokens) + key * static_cast<double>(shape.keys);
  }
  double swap_seconds(int64_t) const override { return 0; }
};

class SkipJoinLevels : public ::testing::Test {
 protected:
  SkipJoinLevels() : desk("skip_join_mlfq:quantum_ms=1000,levels=4,starve_ms=16000") {
    desk.cost = &cost;
    unknown.id = 1'000'000;
  }

  SchedulerPolicy& policy() { return desk.planner->policy(); }
  void look() {
    std::vector<const Sequence*> queue;
    policy().rank(queue, desk.view());
  }
  void at_second(int64_t second) { desk.now_ns = second * 1'000'000'000; }
  double left(const Sequence& stream) { return policy().gain_seconds(stream, unknown) + 1; }
  // A step of one token, half a second of its own.
  void decode(const Sequence& stream, int times = 1) {
    for (int i = 0; i < times; ++i) desk.ran(stream, 1, true, 100);
  }

  Desk desk;
  HalfSecondTokens cost;
  Sequence unknown;
};

TEST_F(SkipJoinLevels, JoinsTheFirstLevelThatHoldsItsPrompt) {
  for (auto [tokens, quantum] :
       {std::pair{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 4}, {8, 4}, {9, 8}, {16, 8}, {17, 8}, {1000, 8}}) {
    desk.clear();
    Sequence& stream = desk.wait(static_cast<RequestId>(100 + tokens), tokens);
    look();
    EXPECT_EQ(left(stream), quantum) << tokens;
  }
  EXPECT_EQ(policy().gain_seconds(unknown, unknown), 0);
}

TEST_F(SkipJoinLevels, GainIsTheVictimsRemainingQuantumMinusTheNewStreams) {
  Sequence &longer = desk.run(1, 16, 0, 0), &middle = desk.wait(2, 4);
  look();
  EXPECT_EQ(policy().gain_seconds(longer, middle), 8 - 2);
  EXPECT_EQ(policy().gain_seconds(middle, longer), 2 - 8);
  decode(longer, 3);
  EXPECT_EQ(policy().gain_seconds(longer, middle), 8 - 1.5 - 2);
}

TEST_F(SkipJoinLevels, WithoutACostModelAllJoinTheFirstLevelAndStepsCountInFull) {
  desk.cost = nullptr;
  Sequence& stream = desk.run(1, 1000, 0, 0);
  look();
  EXPECT_EQ(left(stream), 1);
  desk.ran(stream, 1, true, 0.75);
  EXPECT_EQ(left(stream), 0.25);
}

TEST_F(SkipJoinLevels, UsedUpQuantumDemotesByOneLevel) {
  Sequence& stream = desk.run(1, 1, 1, 1);
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
  Sequence& stream = desk.run(1, 40, 0, 0);
  look();
  stream.computed = 4;
  desk.ran(stream, 4, false, 100);  // tokens 0 to 3
  EXPECT_EQ(left(stream), 8 - (2 + 4.0 / 64));
  stream.computed = 10;
  desk.ran(stream, 2, false, 100);  // tokens 8 and 9, behind eight others
  EXPECT_EQ(left(stream), 8 - (2 + 4.0 / 64) - (1 + 10.0 / 64));
  desk.ran(stream, 2, false, 0.25);
  EXPECT_EQ(left(stream), 8 - (2 + 4.0 / 64) - (1 + 10.0 / 64) - 0.25) << "no more than the step took";
}

TEST_F(SkipJoinLevels, StarvedStreamsReturnToTheTop) {
  at_second(1);
  Sequence &first = desk.run(1, 4, 0, 0), &second = desk.wait(2, 2);  // second and first level
  look();
  decode(first);
  desk.ran(second, 1, true, 0.25);
  at_second(2);
  look();  // both ran
  EXPECT_EQ(left(first), 1.5);
  at_second(18);
  look();
  EXPECT_EQ(left(first), 1.5) << "sixteen seconds are not more than sixteen";
  desk.now_ns += 1000;
  look();
  EXPECT_EQ(left(first), 1) << "the first level's quantum, all of it";
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
    desk.wait(static_cast<RequestId>(id), tokens);
  std::vector<const Sequence*> queue = desk.waiting;
  policy().rank(queue, desk.view());
  std::string order;
  for (const Sequence* stream : queue) order += fmt::format("{} ", stream->id);
  EXPECT_EQ(order, "3 5 2 4 1 ");
}

}  // namespace
}  // namespace millrace
