// Each policy's victims and ranks, called directly: which stream is preempted for which, and when none is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/predictor.h"
#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// The victim's id; 0: none.
RequestId victim(PlannerHarness& harness, const Sequence& wanting) {
  const Sequence* found = harness.planner->policy().victim(harness.view(), wanting);
  return found ? found->id : 0;
}

std::string ranked(PlannerHarness& harness) {
  std::vector<const Sequence*> queue = harness.waiting;
  harness.planner->policy().rank(queue, harness.view());
  std::string out;
  for (const Sequence* stream : queue) out += fmt::format("{}{}", out.empty() ? "" : " ", stream->id);
  return out;
}

TEST(PolicyVictims, ArrivalOrderLetsOnlyRunningStreamsPreemptLaterOnes) {
  for (const char* policy :
       {"fcfs", "prefill_first", "decode_first", "stall_free", "vtc", "shortest_predicted", "orca"}) {
    PlannerHarness harness(policy);
    Sequence& second = harness.hold(harness.run(2, 10, 1, 10), 1);
    Sequence& third = harness.hold(harness.run(3, 10, 1, 10), 1);
    Sequence& fourth = harness.run(4, 10, 1, 10);  // holds nothing
    EXPECT_EQ(victim(harness, second), 3u) << policy;
    EXPECT_EQ(victim(harness, third), 0u) << policy;
    EXPECT_EQ(victim(harness, fourth), 0u) << policy;
    Sequence& first = harness.wait(1, 10);
    EXPECT_EQ(victim(harness, first), 0u) << policy;
    first.phase = StreamPhase::swapped;
    EXPECT_EQ(victim(harness, first), 0u) << policy;
    first.phase = StreamPhase::running;
    EXPECT_EQ(victim(harness, first), 3u) << policy;
    third.phase = StreamPhase::swapping_out;
    EXPECT_EQ(victim(harness, first), 2u) << policy << ": the blocks of 3 are already being swapped out";
  }
}

// `set` gives a stream its rank: 0 the first, 2 the last.
void try_order(const std::string& policy, void (*set)(Sequence&, int)) {
  PlannerHarness harness(policy);
  Sequence& first = harness.hold(harness.run(1, 10, 1, 10), 1);
  Sequence& second = harness.hold(harness.run(2, 10, 1, 10), 1);
  Sequence& third = harness.hold(harness.run(3, 10, 1, 10), 1);
  set(first, 2), set(second, 1), set(third, 1);
  EXPECT_EQ(victim(harness, third), 1u) << policy;
  EXPECT_EQ(victim(harness, second), 1u) << policy;
  EXPECT_EQ(victim(harness, first), 0u) << policy << ": it is itself the last";
  set(first, 1);
  EXPECT_EQ(victim(harness, first), 3u) << policy << ": among equals the last to arrive, for a running stream";
  EXPECT_EQ(victim(harness, third), 0u) << policy;
  Sequence& newcomer = harness.wait(4, 10);
  newcomer.arrival = 0;  // arrived before all of them, preempted since
  set(newcomer, 1);
  EXPECT_EQ(victim(harness, newcomer), 0u) << policy << ": equals are not preempted for a waiting stream";
  set(newcomer, 2);
  EXPECT_EQ(victim(harness, newcomer), 0u) << policy;
  set(newcomer, 0);
  EXPECT_EQ(victim(harness, newcomer), policy.ends_with("false") ? 0u : 3u) << policy;
}

TEST(PolicyVictims, PriorityAndDeadlineTakeTheLastOfTheirOrder) {
  for (const char* options : {"", ":preempt=true", ":preempt=false"}) {
    try_order(fmt::format("priority{}", options),
              [](Sequence& stream, int rank) { stream.request.priority = 1 - rank; });
    try_order(fmt::format("deadline{}", options),
              [](Sequence& stream, int rank) { stream.times.deadline = rank == 2 ? 0 : rank + 1; });
  }
}

TEST(PolicyRanks, PriorityThenArrival) {
  PlannerHarness harness("priority");
  for (auto [id, priority] : {std::pair{1, 0}, {2, -3}, {3, 7}, {4, 0}, {5, 7}})
    harness.wait(static_cast<RequestId>(id), 10).request.priority = priority;
  EXPECT_EQ(ranked(harness), "3 5 1 4 2");
}

TEST(PolicyRanks, EarliestDeadlineThenArrivalAndNoDeadlineLast) {
  PlannerHarness harness("deadline");
  for (auto [id, deadline] : {std::pair{1, 0}, {2, 9}, {3, 1}, {4, 0}, {5, 9}})
    harness.wait(static_cast<RequestId>(id), 10).times.deadline = deadline;
  EXPECT_EQ(ranked(harness), "3 2 5 1 4");
}

// Buckets of 10 tokens, observed through promise(): the prompt's 10 tokens plus the bucket's end.
TEST(ShortestPredictedBuckets, UpperEdgesAreInclusive) {
  for (auto [bucket, predicted, generated, promised] : {std::tuple{10, 1, 0, 20},
                                                        {10, 10, 0, 20},
                                                        {10, 11, 0, 30},
                                                        {10, 0, 0, 20},
                                                        {10, 5, 9, 20},
                                                        {10, 5, 10, 30},
                                                        {10, 5, 20, 40},
                                                        {1, 1, 0, 11},
                                                        {1, 0, 0, 11},
                                                        {1, 2, 0, 12},
                                                        {1, 1, 1, 12},
                                                        {10, 2000, 0, 1000}}) {
    PlannerHarness harness(fmt::format("shortest_predicted:predictor=oracle,bucket={}", bucket));
    Sequence& stream = harness.wait(1, 10, generated);
    stream.request.known_tokens = predicted;
    EXPECT_EQ(harness.planner->policy().promise(stream, harness.limits), promised)
        << bucket << " " << predicted << " " << generated;
  }
}

TEST(ShortestPredictedBuckets, PatienceMustBeExceeded) {
  PlannerHarness harness("shortest_predicted:predictor=oracle,bucket=10,patience_ms=1000");
  harness.wait(1, 10).request.known_tokens = 1;
  harness.wait(2, 10).request.known_tokens = 50;
  for (auto& stream : harness.streams) stream->times.submitted = 5'000'000'000;
  harness.streams[1]->times.submitted = 4'000'000'000;
  harness.now_ns = 5'000'000'000;
  EXPECT_EQ(ranked(harness), "1 2");
  harness.now_ns += 1000;
  EXPECT_EQ(ranked(harness), "2 1") << "ahead of the first bucket too";
}

TEST(ShortestPredictedBuckets, OnlyCompleteAnswersAreLearned) {
  PlannerHarness harness("shortest_predicted:predictor=history,bucket=1");
  SchedulerPolicy& policy = harness.planner->policy();
  Sequence& stream = harness.wait(1, 10);
  Sequence done;
  done.prompt_tokens = 10;
  done.tokens.assign(15, 1);
  policy.observe({.kind = ScheduleEvent::Kind::left, .stream = &done, .whole = false});
  policy.observe({.kind = ScheduleEvent::Kind::ran, .stream = &done, .whole = true});
  EXPECT_EQ(policy.promise(stream, harness.limits), 10 + 128) << "nothing is known yet";
  policy.observe({.kind = ScheduleEvent::Kind::left, .stream = &done, .whole = true});
  EXPECT_EQ(policy.promise(stream, harness.limits), 10 + 5);
}

TEST(PolicyNames, ErrorsListTheChoices) {
  for (const char* text : {"nothing", "nothing:reserve=whole"})
    EXPECT_EQ(make_policy(text).error().message, "policy: unknown 'nothing'; available: " + policies().names());
  EXPECT_EQ(make_policy("shortest_predicted:predictor=dice").error().message,
            "predictor: unknown 'dice'; available: " + predictors().names());
  EXPECT_EQ(make_policy("fcfs:reserve=some").error().message, "reserve: whole or prompt, got 'some'");
}

}  // namespace
}  // namespace millrace
