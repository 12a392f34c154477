// An engine whose policy makes no progress still serves all streams and counts the live-lock; a simulation stops with
// the reason.
#include "schedule/livelock.h"

#include <gtest/gtest.h>

#include "engine/engine_core.h"
#include "run/executors/simulated_executor.h"
#include "simulate/simulation.h"

namespace millrace {
namespace {

// Once there are two streams, each waits for the other.
class Polite final : public SchedulerPolicy {
 public:
  void share(const ScheduleView& view, int64_t, std::vector<Share>& out) override {
    if (view.running.size() == 1) out.push_back({view.running.front(), view.running.front()->remaining()});
  }
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return nullptr; }
};

EngineOptions small() {
  EngineOptions o;
  o.context = 256;
  o.kv_tokens = 1024;
  return o;
}

Request request(int64_t i) {
  Request r;
  r.prompt.assign(20, static_cast<TokenId>(i));
  r.known_tokens = r.max_tokens = 5;
  return r;
}

TEST(Livelock, EngineRunsOpenStreamsToCompletion) {
  ManualClock clock;
  auto cost = load_cost_model("opt-13b-a100");
  ASSERT_TRUE(cost.ok());
  auto executor = SimulatedExecutor::create(std::move(*cost), clock, small());
  ASSERT_TRUE(executor.ok());
  auto core = EngineCore::create(std::move(*executor), small(), &clock, std::make_unique<Polite>());
  ASSERT_TRUE(core.ok());
  std::vector<TokenEvent> events;
  for (int64_t round = 1; round <= 2; ++round) {
    for (int64_t i = 0; i < 3; ++i) ASSERT_TRUE((*core)->add(static_cast<RequestId>(10 * round + i), request(i)).ok());
    for (int step = 0; step < 1000 && !(*core)->idle(); ++step) (*core)->step(events);
    EXPECT_TRUE((*core)->idle());
    EXPECT_EQ((*core)->stats().livelocks, round);  // in between, the policy decided again
  }
  int64_t ended = 0;
  for (const TokenEvent& event : events) ended += event.finish == FinishReason::stop;
  EXPECT_EQ(ended, 6);
}

TEST(Livelock, SimulationStopsWithTheReason) {
  SimulatedLoad load;
  load.requests = 3;
  load.arrival_seconds = [](int64_t i) { return static_cast<double>(i) * 1e-6; };
  load.request = request;
  std::vector<std::unique_ptr<CostModel>> costs;
  auto cost = load_cost_model("opt-13b-a100");
  ASSERT_TRUE(cost.ok());
  costs.push_back(std::move(*cost));
  auto result = simulate(load, std::move(costs), small(), {.policy = [] { return std::make_unique<Polite>(); }});
  ASSERT_FALSE(result.ok());
  EXPECT_TRUE(result.error().message.starts_with("simulation: live-lock under policy")) << result.error().message;
}

}  // namespace
}  // namespace millrace
