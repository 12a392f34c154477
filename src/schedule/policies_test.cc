// Each policy's decision in a case small enough to check by hand.
#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

TEST(Policies, NamesAndOptionsAreChecked) {
  for (const auto& entry : policies().entries()) EXPECT_TRUE(make_policy(entry.info.name).ok()) << entry.info.name;
  for (const char* text : {"nobody", "fcfs:reserve=some", "fcfs:chunk=1", "orca:room=small", "vtc:weights=a:0",
                           "vtc:weights=a", "stall_free:tbt_ms=fast", "shortest_predicted:predictor=dice"}) {
    auto made = make_policy(text);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.error().kind, ErrorKind::user);
  }
  EXPECT_TRUE(make_policy("vtc:weights=a:2;b:0.5,prompt_cost=3").ok());
  EXPECT_TRUE(make_policy("shortest_predicted:predictor=constant:tokens=9").ok());
}

TEST(PrefillFirst, PromptsStallDecodes) {
  PlannerHarness harness("prefill_first");
  harness.limits.batch_tokens = 64;
  harness.run(1, 8, 5, 12), harness.run(2, 40, 0, 0), harness.run(3, 40, 0, 0);
  EXPECT_EQ(harness.chunks(), "2:[0+40]*");  // 3 would not fit whole
  harness.clear();
  harness.run(1, 8, 5, 12), harness.run(2, 40, 1, 40);
  EXPECT_EQ(harness.chunks(), "1:[12+1]* 2:[40+1]*");
}

TEST(DecodeFirst, StepsHaveAFixedSize) {
  PlannerHarness harness("decode_first:step_tokens=32");
  harness.run(1, 8, 5, 12), harness.run(2, 20, 0, 0), harness.run(3, 40, 0, 0);
  EXPECT_EQ(harness.chunks(), "1:[12+1]* 2:[0+20]* 3:[0+11]");
}

TEST(StallFree, PromptsUseTheSlackOfTheTimeBetweenTokens) {
  PlannerHarness harness("stall_free:tbt_ms=50.5");
  FixedCost cost;  // 10 ms + 1 ms per token
  harness.cost = &cost;
  harness.run(1, 8, 5, 12), harness.run(2, 400, 0, 0);
  EXPECT_EQ(harness.chunks(), "1:[12+1]* 2:[0+39]");
  cost.step = 0.2;  // nothing fits: a minimum always runs
  EXPECT_EQ(harness.chunks(), "1:[12+1]* 2:[0+16]");
  harness.clear();
  harness.run(2, 400, 0, 0);  // no stream to stall
  EXPECT_EQ(harness.chunks(), "2:[0+400]*");
}

TEST(SkipJoinMlfq, LongPromptsJoinLowerAndServiceDemotes) {
  PlannerHarness harness("skip_join_mlfq:quantum_ms=20,levels=4");
  FixedCost cost;
  harness.cost = &cost;
  harness.limits.max_streams = 1;
  Sequence& longer = harness.run(1, 100, 0, 0);  // 110 ms: the fourth level
  Sequence& shorter = harness.run(2, 5, 0, 0);   // 15 ms: the first
  EXPECT_EQ(harness.chunks(), "2:[0+5]*");
  shorter.tokens.push_back(1), shorter.computed = 5;
  harness.ran(shorter, 5, true, 0.015);
  EXPECT_EQ(harness.chunks(), "2:[5+1]*");  // its quantum is not used up
  harness.ran(shorter, 1, true, 0.006);     // second level
  for (int i = 0; i < 3; ++i)
    harness.ran(shorter, 1, true, 0.5);  // the step is long because of other streams: its own share is 11 ms
  EXPECT_EQ(harness.chunks(), "2:[5+1]*");
  for (int i = 0; i < 9; ++i) harness.ran(shorter, 1, true, 0.5);  // fourth, where 1 came first
  EXPECT_EQ(harness.chunks(), "1:[0+100]*");
  harness.now_ns = static_cast<int64_t>(61e9);
  harness.ran(longer, 100, true, 0.01);
  EXPECT_EQ(harness.chunks(), "2:[5+1]*");  // starved: at the top again
}

TEST(SkipJoinMlfq, PromptsLeaveATokenForEachDecode) {
  PlannerHarness harness("skip_join_mlfq:quantum_ms=1000");
  FixedCost cost;
  harness.cost = &cost;
  harness.limits.batch_tokens = 64;
  harness.limits.max_streams = 2;
  Sequence& decoding = harness.run(1, 8, 5, 12);
  harness.chunks();                                                     // joins
  for (int i = 0; i < 200; ++i) harness.ran(decoding, 1, true, 0.011);  // far down
  harness.run(2, 200, 0, 0);
  EXPECT_EQ(harness.chunks(), "2:[0+63] 1:[12+1]*");
  harness.run(3, 200, 0, 0);  // two streams ahead of it: no place in the batch
  EXPECT_EQ(harness.chunks(), "2:[0+64]");
}

TEST(SkipJoinMlfq, SwapsOutEarlyWhenMemoryRunsOut) {
  PlannerHarness harness("skip_join_mlfq:quantum_ms=20,levels=4,headroom=0.5");
  FixedCost cost;
  harness.cost = &cost;
  harness.swap_tokens = 1000;
  harness.limits.total_blocks = 10;
  harness.limits.resident_streams = 4;
  cost.swap = 0.001;
  harness.hold(harness.run(1, 100, 0, 50), 7);
  harness.free_blocks = 3;
  EXPECT_EQ(harness.places(), "");  // the queue is empty
  harness.wait(2, 5);
  EXPECT_EQ(harness.places().substr(0, 10), "preempt 1~");
}

TEST(Vtc, LeastServedTenantIsFirst) {
  PlannerHarness harness("vtc:weights=b:2");
  harness.limits.resident_streams = harness.limits.max_streams = 100;
  auto tenant = [](Sequence& s, const char* name) -> Sequence& {
    s.request.tenant = name;
    return s;
  };
  for (RequestId id : {1, 2, 3, 4}) tenant(harness.wait(id, 10), "a");
  for (RequestId id : {5, 6, 7, 8}) tenant(harness.wait(id, 10), "b");
  // a: 10 a stream; b: 5. Equal counters are ordered by name.
  EXPECT_EQ(harness.places(), "admit 1 5 6 2 7 8 3 4;");
  for (int i = 0; i < 3; ++i) harness.ran(*harness.streams[0], 1, true, 0.01);  // a was served 6 more
  EXPECT_EQ(harness.places(), "admit 5 6 1 7 8 2 3 4;");
}

TEST(Vtc, ReturningTenantHasNoCredit) {
  PlannerHarness harness("vtc");
  auto busy = std::make_unique<Sequence>(), back = std::make_unique<Sequence>();
  busy->request.tenant = "busy", back->request.tenant = "back";
  SchedulerPolicy& policy = harness.planner->policy();
  policy.observe({ScheduleEvent::Kind::queued, busy.get()});
  for (int i = 0; i < 100; ++i) policy.observe({ScheduleEvent::Kind::ran, busy.get(), 1, true, 0.01});
  policy.observe({ScheduleEvent::Kind::queued, back.get()});
  for (int i = 0; i < 3; ++i) policy.observe({ScheduleEvent::Kind::ran, back.get(), 1, true, 0.01});
  std::vector<const Sequence*> queue = {back.get(), busy.get()};
  policy.rank(queue, harness.view());
  EXPECT_EQ(queue.front(), busy.get());  // 200 against 206, not against 6
}

TEST(Priority, PreemptsLowerButNotEqual) {
  PlannerHarness harness("priority");
  harness.limits.max_streams = 2;
  harness.hold(harness.run(1, 10, 3, 12), 1).request.priority = 1;
  harness.hold(harness.run(2, 10, 3, 12), 1).request.priority = 0;
  harness.wait(3, 10).request.priority = 1;
  harness.wait(4, 10).request.priority = 1;
  EXPECT_EQ(harness.places(), "preempt 2; admit 3;");
  PlannerHarness gentle("priority:preempt=false");
  gentle.limits.max_streams = 1;
  gentle.hold(gentle.run(1, 10, 3, 12), 1);
  gentle.wait(2, 10).request.priority = 9;
  EXPECT_EQ(gentle.places(), "");
}

TEST(Deadline, EarliestFirstAndUnreachableDeadlinesAreRejected) {
  PlannerHarness harness("deadline");
  FixedCost cost;
  harness.cost = &cost;
  harness.wait(1, 10);
  harness.wait(2, 10).times.deadline = 9'000'000'000;
  harness.wait(3, 10).times.deadline = 5'000'000'000;
  EXPECT_EQ(harness.places(), "admit 3 2 1;");
  Sequence late;
  late.prompt_tokens = 100;
  late.tokens.assign(100, 1);
  late.max_total = 110;
  late.times.deadline = 100'000'000;  // 0.1 s; the prompt alone takes 0.11 s
  auto refused = harness.planner->policy().accept(late, harness.view());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  EXPECT_NE(refused.error().message.find("0.110 s"), std::string::npos) << refused.error().message;
  late.times.deadline = 2'000'000'000;
  EXPECT_TRUE(harness.planner->policy().accept(late, harness.view()).ok());
}

TEST(ShortestPredicted, BucketsThenArrivalThenPatience) {
  PlannerHarness harness("shortest_predicted:predictor=oracle,bucket=10,patience_ms=1000");
  harness.wait(1, 10).request.known_tokens = 25;
  harness.wait(2, 10).request.known_tokens = 9;
  harness.wait(3, 10).request.known_tokens = 2;
  harness.wait(4, 10).request.known_tokens = 12;
  for (auto& s : harness.streams) s->times.submitted = 1'000'000'000;
  harness.now_ns = 1'000'000'001;
  EXPECT_EQ(harness.places(), "admit 2 3 4 1;");
  harness.streams[0]->times.submitted = 1;
  harness.now_ns = 1'500'000'000;
  EXPECT_EQ(harness.places(), "admit 1 2 3 4;");
  EXPECT_EQ(harness.planner->policy().promise(*harness.streams[3], harness.limits), 30);  // prompt and a bucket's end
}

TEST(ShortestPredicted, HistoryLearnsPerTenant) {
  PlannerHarness harness("shortest_predicted:predictor=history,bucket=10");
  SchedulerPolicy& policy = harness.planner->policy();
  for (int i = 0; i < 8; ++i) {
    for (const char* tenant : {"brief", "wordy"}) {
      Sequence done;
      done.request.tenant = tenant;
      done.prompt_tokens = 10;
      done.tokens.assign(10 + (tenant[0] == 'b' ? 5 : 95), 1);
      policy.observe({.kind = ScheduleEvent::Kind::left, .stream = &done, .whole = true});
    }
  }
  for (int i = 0; i < 50; ++i) {  // prompts that are read teach nothing of answers
    Sequence read;
    read.request.tenant = "wordy";
    read.prompt_tokens = read.max_total = 10;
    read.tokens.assign(10, 1);
    policy.observe({.kind = ScheduleEvent::Kind::left, .stream = &read, .whole = true});
  }
  harness.wait(1, 10).request.tenant = "wordy";
  harness.wait(2, 10).request.tenant = "brief";
  EXPECT_EQ(harness.places(), "admit 2 1;");
}

TEST(Orca, ReservesTheLongestAnswer) {
  PlannerHarness harness("orca");
  harness.limits.context = 160;
  harness.limits.total_blocks = harness.free_blocks = 25;
  for (RequestId id : {1, 2, 3}) harness.wait(id, 10, 0, 40).request.known_tokens = 5;
  EXPECT_EQ(harness.places(), "admit 1 2;");  // 10 blocks each
  PlannerHarness oracle("orca:room=oracle");
  oracle.limits.total_blocks = oracle.free_blocks = 3;
  for (RequestId id : {1, 2, 3}) oracle.wait(id, 10, 0, 40).request.known_tokens = 5;
  EXPECT_EQ(oracle.places(), "admit 1 2 3;");
}

}  // namespace
}  // namespace millrace
