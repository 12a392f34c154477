// A simulated model with recurrent layers: prompts continue from copies of states, as in an engine.
#include <gtest/gtest.h>

#include <numeric>

#include "simulate/simulation.h"

namespace millrace {
namespace {

// Requests of one of four prefixes of 256 tokens, and 100 tokens of their own.
SimulationResult run_states(int64_t state_bytes, const std::string& evictor, int64_t cache_bytes = 0) {
  SimulatedLoad load;
  load.requests = 40;
  load.arrival_seconds = [](int64_t i) { return 10.0 * static_cast<double>(i); };
  load.request = [](int64_t i) {
    Request request;
    request.prompt.assign(256, static_cast<TokenId>(i % 4));
    for (TokenId t = 0; t < 100; ++t) request.prompt.push_back(static_cast<TokenId>(1000 + 100 * i + t));
    request.known_tokens = request.max_tokens = 4;
    return request;
  };
  EngineOptions o;
  o.context = 4096;
  o.kv_tokens = 40000;
  o.state_evict = evictor;
  o.state_cache_bytes = cache_bytes;
  std::vector<std::unique_ptr<CostModel>> costs;
  costs.push_back(load_cost_model("llama-7b-a100").value());
  auto result = simulate(load, std::move(costs), o, {.model = {.state_bytes = state_bytes}});
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(*result) : SimulationResult{};
}

int64_t cached_by(const SimulationResult& result) {
  return std::accumulate(result.requests.begin(), result.requests.end(), int64_t{0},
                         [](int64_t sum, const SimulatedRequest& one) { return sum + one.cached_tokens; });
}

TEST(SimulatedStates, PromptsContinueFromCopies) {
  EXPECT_EQ(cached_by(run_states(0, "last")), 36 * 256) << "from the second request of a prefix on";
  const SimulationResult last = run_states(1 << 20, "last", 64 << 20);
  EXPECT_EQ(last.stats.state_cache.slots, 64);
  EXPECT_EQ(cached_by(last), 32 * 256) << "the second request takes the copy";
  EXPECT_EQ(last.stats.state_cache.hits, 32);
  const SimulationResult every = run_states(1 << 20, "every:k=2", 1 << 30);
  EXPECT_EQ(cached_by(every), 36 * 256);
  EXPECT_EQ(every.stats.state_cache.evicted, 0);
}

TEST(SimulatedStates, FewSlotsHoldLess) {
  // Each of four prefixes comes back after four prompts, and each prompt stores a copy at its end.
  EXPECT_EQ(cached_by(run_states(1 << 20, "last", 4 << 20)), 0);
  EXPECT_EQ(cached_by(run_states(1 << 20, "marconi", 8 << 20)), 32 * 256) << "copies at branches stay";
  EngineOptions o;
  o.context = 64;
  std::vector<std::unique_ptr<CostModel>> costs;
  costs.push_back(load_cost_model("llama-7b-a100").value());
  EXPECT_EQ(simulate(SimulatedLoad{}, std::move(costs), o, {.model = {.state_bytes = -1}}).error().message,
            "state bytes: must be between 0 and 8589934592, got -1");
}

}  // namespace
}  // namespace millrace
