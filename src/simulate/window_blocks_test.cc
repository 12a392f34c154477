// A simulated model whose layers all see a window: streams hold less, so that more of them run at once.
#include <gtest/gtest.h>

#include "run/plan/kv_places.h"
#include "simulate/simulation.h"

namespace millrace {
namespace {

SimulationResult run_window(int64_t window, int64_t swap_tokens) {
  SimulatedLoad load;
  load.requests = 24;
  load.arrival_seconds = [](int64_t i) { return 0.01 * static_cast<double>(i); };
  load.request = [](int64_t i) {
    Request request;
    request.prompt.assign(static_cast<size_t>(900 + 10 * i), static_cast<TokenId>(i));
    request.known_tokens = request.max_tokens = 300;
    return request;
  };
  EngineOptions o;
  o.context = 4096;
  o.max_streams = 16;
  o.kv_tokens = 6000;
  o.batch_tokens = 256;
  o.policy = "fcfs:reserve=prompt";
  o.kv_tier = memory_tier(swap_tokens);
  std::vector<std::unique_ptr<CostModel>> costs;
  costs.push_back(load_cost_model("llama-7b-a100").value());
  auto result = simulate(load, std::move(costs), o, {.model = {.window = window}});
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(*result) : SimulationResult{};
}

TEST(SimulatedWindows, StreamsHoldTheirWindowAndAStep) {
  for (const int64_t swap : {0, 4000}) {
    const SimulationResult all = run_window(0, swap), window = run_window(128, swap);
    for (const SimulationResult* result : {&all, &window})
      for (const SimulatedRequest& request : result->requests) EXPECT_EQ(request.finish, FinishReason::stop);
    EXPECT_LE(all.most_running, 6);
    EXPECT_EQ(window.most_running, 15);  // 127 + 256 + 16 tokens are 25 of 375 blocks
    EXPECT_LT(window.seconds, all.seconds);
    EXPECT_EQ(window.stats.preemptions, 0);
  }
  EXPECT_EQ(run_window(4096, 0).most_running, run_window(0, 0).most_running);
}

TEST(SimulatedWindows, NegativeOnesAreRefused) {
  SimulatedLoad load;
  std::vector<std::unique_ptr<CostModel>> costs;
  costs.push_back(load_cost_model("llama-7b-a100").value());
  EngineOptions o;
  o.context = 64;
  EXPECT_EQ(simulate(load, std::move(costs), o, {.model = {.window = -1}}).error().message,
            "window: must be 0 or more, and 0 with an evictor, got -1");
}

}  // namespace
}  // namespace millrace
