// Each policy's victims and ranks, asked directly: which stream loses its blocks, and for which wanting stream none
// does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

// The victim's id; 0: none.
RequestId victim(Desk& desk, const Sequence& wanting) {
  const Sequence* found = desk.planner->policy().victim(desk.view(), wanting);
  return found ? found->id : 0;
}

std::string ranked(Desk& desk) {
  std::vector<const Sequence*> queue = desk.waiting;
  desk.planner->policy().rank(queue, desk.view());
  std::string out;
  for (const Sequence* stream : queue) out += fmt::format("{}{}", out.empty() ? "" : " ", stream->id);
  return out;
}

TEST(PolicyVictims, ArrivalOrderLetsOnlyRunningStreamsPreemptLaterOnes) {
  for (const char* policy :
       {"fcfs", "prefill_first", "decode_first", "stall_free", "vtc", "shortest_predicted", "orca"}) {
    Desk desk(policy);
    Sequence& second = desk.hold(desk.run(2, 10, 1, 10), 1);
    Sequence& third = desk.hold(desk.run(3, 10, 1, 10), 1);
    Sequence& fourth = desk.run(4, 10, 1, 10);  // holds nothing
    EXPECT_EQ(victim(desk, second), 3u) << policy;
    EXPECT_EQ(victim(desk, third), 0u) << policy;
    EXPECT_EQ(victim(desk, fourth), 0u) << policy;
    Sequence& first = desk.wait(1, 10);
    EXPECT_EQ(victim(desk, first), 0u) << policy;
    first.phase = StreamPhase::swapped;
    EXPECT_EQ(victim(desk, first), 0u) << policy;
    first.phase = StreamPhase::running;
    EXPECT_EQ(victim(desk, first), 3u) << policy;
    third.phase = StreamPhase::swapping_out;
    EXPECT_EQ(victim(desk, first), 2u) << policy << ": the blocks of 3 are on their way out already";
  }
}

// `set` gives a stream its rank: 0 the first, 2 the last.
void try_order(const std::string& policy, void (*set)(Sequence&, int)) {
  Desk desk(policy);
  Sequence& first = desk.hold(desk.run(1, 10, 1, 10), 1);
  Sequence& second = desk.hold(desk.run(2, 10, 1, 10), 1);
  Sequence& third = desk.hold(desk.run(3, 10, 1, 10), 1);
  set(first, 2), set(second, 1), set(third, 1);
  EXPECT_EQ(victim(desk, third), 1u) << policy;
  EXPECT_EQ(victim(desk, second), 1u) << policy;
  EXPECT_EQ(victim(desk, first), 0u) << policy << ": it is the last itself";
  set(first, 1);
  EXPECT_EQ(victim(desk, first), 3u) << policy << ": among equals the last to arrive, for one that runs";
  EXPECT_EQ(victim(desk, third), 0u) << policy;
  Sequence& newcomer = desk.wait(4, 10);
  newcomer.arrival = 0;  // before all of them, away for a while
  set(newcomer, 1);
  EXPECT_EQ(victim(desk, newcomer), 0u) << policy << ": equals are not displaced for one that waits";
  set(newcomer, 2);
  EXPECT_EQ(victim(desk, newcomer), 0u) << policy;
  set(newcomer, 0);
  EXPECT_EQ(victim(desk, newcomer), policy.ends_with("false") ? 0u : 3u) << policy;
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
  Desk desk("priority");
  for (auto [id, priority] : {std::pair{1, 0}, {2, -3}, {3, 7}, {4, 0}, {5, 7}})
    desk.wait(static_cast<RequestId>(id), 10).request.priority = priority;
  EXPECT_EQ(ranked(desk), "3 5 1 4 2");
}

TEST(PolicyRanks, EarliestDeadlineThenArrivalAndNoDeadlineLast) {
  Desk desk("deadline");
  for (auto [id, deadline] : {std::pair{1, 0}, {2, 9}, {3, 1}, {4, 0}, {5, 9}})
    desk.wait(static_cast<RequestId>(id), 10).times.deadline = deadline;
  EXPECT_EQ(ranked(desk), "3 2 5 1 4");
}

// Buckets of 10 tokens, seen in what is promised: the prompt's 10 tokens and the bucket's end.
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
    Desk desk(fmt::format("shortest_predicted:predictor=oracle,bucket={}", bucket));
    Sequence& stream = desk.wait(1, 10, generated);
    stream.request.known_tokens = predicted;
    EXPECT_EQ(desk.planner->policy().promise(stream, desk.limits), promised)
        << bucket << " " << predicted << " " << generated;
  }
}

TEST(ShortestPredictedBuckets, PatienceMustBeExceeded) {
  Desk desk("shortest_predicted:predictor=oracle,bucket=10,patience_ms=1000");
  desk.wait(1, 10).request.known_tokens = 1;
  desk.wait(2, 10).request.known_tokens = 50;
  for (auto& stream : desk.streams) stream->times.submitted = 5'000'000'000;
  desk.streams[1]->times.submitted = 4'000'000'000;
  desk.now_ns = 5'000'000'000;
  EXPECT_EQ(ranked(desk), "1 2");
  desk.now_ns += 1000;
  EXPECT_EQ(ranked(desk), "2 1") << "ahead of the first bucket too";
}

TEST(ShortestPredictedBuckets, OnlyCompleteAnswersAreLearned) {
  Desk desk("shortest_predicted:predictor=history,bucket=1");
  SchedulerPolicy& policy = desk.planner->policy();
  Sequence& stream = desk.wait(1, 10);
  Sequence done;
  done.prompt_tokens = 10;
  done.tokens.assign(15, 1);
  policy.observe({.kind = ScheduleEvent::Kind::left, .stream = &done, .whole = false});
  policy.observe({.kind = ScheduleEvent::Kind::ran, .stream = &done, .whole = true});
  EXPECT_EQ(policy.promise(stream, desk.limits), 10 + 128) << "nothing is known yet";
  policy.observe({.kind = ScheduleEvent::Kind::left, .stream = &done, .whole = true});
  EXPECT_EQ(policy.promise(stream, desk.limits), 10 + 5);
}

TEST(PolicyNames, ErrorsListTheChoices) {
  for (const char* text : {"nothing", "nothing:reserve=whole"})
    EXPECT_EQ(
        make_policy(text).error().message,
        "policy: unknown 'nothing'; available: fcfs, prefill_first, decode_first, stall_free, skip_join_mlfq, vtc, "
        "priority, deadline, shortest_predicted, orca");
  EXPECT_EQ(make_policy("shortest_predicted:predictor=dice").error().message,
            "predictor: unknown 'dice'; available: oracle, constant, history");
  EXPECT_EQ(make_policy("fcfs:reserve=some").error().message, "reserve: whole or prompt, got 'some'");
}

}  // namespace
}  // namespace millrace
