// Virtual token counters, observed through the order of two tenants' streams: the smaller counter is first, equal ones
// are ordered by name. A sampled token counts 2, a prompt token 1.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

class VtcCounters : public ::testing::Test {
 protected:
  VtcCounters() : harness("vtc") {}

  Sequence of(const std::string& tenant, int64_t prompt = 0) const {
    Sequence stream;
    stream.request.tenant = tenant;
    stream.prompt_tokens = prompt;
    return stream;
  }
  void tell(ScheduleEvent::Kind kind, const std::string& tenant, int times = 1) {
    const Sequence stream = of(tenant);
    for (int i = 0; i < times; ++i) harness.planner->policy().observe({kind, &stream, 1, true, 0.01});
  }
  void comes(const std::string& tenant) { tell(ScheduleEvent::Kind::queued, tenant); }
  void goes(const std::string& tenant) { tell(ScheduleEvent::Kind::left, tenant); }
  void served(const std::string& tenant, int tokens) { tell(ScheduleEvent::Kind::ran, tenant, tokens / 2); }
  std::string first_of(const std::string& one, const std::string& other) {
    const Sequence a = of(one, 1), b = of(other, 1);
    std::vector<const Sequence*> queue = {&a, &b};
    harness.planner->policy().rank(queue, harness.view());
    return queue.front()->request.tenant;
  }
  // `later` is second by name: with equal counters it is second, and 2 tokens for the other make it first.
  void expect_equal(const std::string& earlier, const std::string& later) {
    EXPECT_EQ(first_of(earlier, later), earlier);
    served(earlier, 2);
    EXPECT_EQ(first_of(earlier, later), later);
  }

  PlannerHarness harness;
};

TEST_F(VtcCounters, AdmissionChargesThePromptOnce) {
  comes("a"), comes("b");
  Sequence prompt = of("a", 100);
  harness.admitted(prompt);
  served("b", 100);
  expect_equal("a", "b");
  prompt.progress.preemptions = 1;
  served("b", 2);
  harness.admitted(prompt);
  expect_equal("a", "b");
}

TEST_F(VtcCounters, QueuedPreemptedStreamIsNotChargedItsPromptAgain) {
  comes("a"), comes("b");
  Sequence again = of("a", 50), next = of("a", 50), other = of("b", 50);
  again.progress.preemptions = 1;
  std::vector<const Sequence*> queue = {&again, &next, &other};
  harness.planner->policy().rank(queue, harness.view());
  EXPECT_EQ(queue, (std::vector<const Sequence*>{&again, &next, &other}));
}

TEST_F(VtcCounters, IfAllAreIdleANewTenantStartsFromTheLastThatLeft) {
  comes("a");
  served("a", 200);
  goes("a");
  comes("b");
  comes("a");
  expect_equal("a", "b");
}

TEST_F(VtcCounters, NewTenantStartsFromTheLeastActiveCounter) {
  comes("busy"), comes("least"), comes("idle");
  served("busy", 300), served("least", 200);
  goes("idle");
  comes("new");
  expect_equal("least", "new");
}

TEST_F(VtcCounters, LeastCounterMayBeZero) {
  comes("a"), comes("b"), comes("c");
  served("b", 200), served("c", 300);
  goes("c");
  comes("d");
  expect_equal("a", "d");
}

TEST_F(VtcCounters, ReturningTenantKeepsALargerCounter) {
  comes("a"), comes("b");
  served("b", 200);
  goes("b");
  comes("b");
  served("a", 200);
  expect_equal("a", "b");
}

TEST_F(VtcCounters, IdleTenantsAreRetainedUpToABound) {
  comes("x"), comes("a");
  served("x", 10), served("a", 200);
  goes("a");
  for (int i = 0; i < 4094; ++i) tell(ScheduleEvent::Kind::admitted, fmt::format("t{}", i));
  comes("z"), goes("z");  // the 4097th
  comes("a");
  expect_equal("a", "x");  // both have 10: a's counter was evicted, x's was not
}

TEST_F(VtcCounters, NoneIsEvictedAtTheBound) {
  comes("x"), comes("a");
  served("x", 10), served("a", 200);
  goes("a");
  for (int i = 0; i < 4093; ++i) tell(ScheduleEvent::Kind::admitted, fmt::format("t{}", i));
  comes("z"), goes("z");  // the 4096th
  comes("a");
  served("x", 190);
  expect_equal("a", "x");
}

TEST_F(VtcCounters, Shares) {
  harness.run(1, 40, 0, 0), harness.run(2, 8, 5, 12);
  std::vector<Share> out;
  harness.planner->policy().share(harness.view(), 30, out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].stream->id, 2u);
  EXPECT_EQ(out[1].tokens, 29);
}

TEST(VtcWeights, AreAboveZeroAndBelowABillion) {
  for (const char* weights : {"a:1e-9", "a:999999999", "a:2;b:0.5", "a:b:3", ""})
    EXPECT_TRUE(make_policy(fmt::format("vtc:weights={}", weights)).ok()) << weights;
  for (const char* weights : {"a:", "a:0", "a:-1", "a:1e9", "a:1;b:", "a:2x", ":", "a:nan"}) {
    auto made = make_policy(fmt::format("vtc:weights={}", weights));
    ASSERT_FALSE(made.ok()) << weights;
    EXPECT_TRUE(
        made.error().message.starts_with("weights: must be TENANT:WEIGHT;TENANT:WEIGHT with weights above 0, got '"))
        << made.error().message;
  }
}

}  // namespace
}  // namespace millrace
