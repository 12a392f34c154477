// Under skip_join_mlfq without swap, 1,200 requests of long prompts and short answers displaced each other 63,606 times
// and computed 160 million tokens again: who gave way lost all that it had computed, came back and gave way again. Whoever
// chose that policy on a machine without swap waited for hours. The tests of the policy had swap, where it costs little.
#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "engine/simulation.h"

namespace millrace {
namespace {

TEST(PreemptionLivelock, LongPromptsAndShortAnswersAreNotComputedAgainAndAgain) {
  constexpr int64_t kRequests = 300;
  SimulatedLoad load;
  load.requests = kRequests;
  load.arrival_seconds = [](int64_t i) { return static_cast<double>(i / 20) * 8; };  // bursts of 20
  int64_t tokens = 0;
  load.request = [&](int64_t i) {
    Request request;
    const auto prompt = static_cast<size_t>(300 + 4000 * std::pow(philox_uniform(3, 1, static_cast<uint64_t>(i)), 2));
    request.prompt.assign(prompt, static_cast<TokenId>(i));
    request.known_tokens = request.max_tokens = 1 + static_cast<int64_t>(philox_uniform(3, 2, static_cast<uint64_t>(i)) * 40);
    tokens += static_cast<int64_t>(prompt) + request.known_tokens;
    return request;
  };
  EngineOptions o;
  o.context = 8192;
  o.max_streams = 32;
  o.kv_tokens = 20'000;
  o.batch_tokens = 4096;
  o.queue = 1 << 20;
  o.prefix_cache = false;
  o.policy = "skip_join_mlfq";
  auto cost = load_cost_model("opt-13b-a100");
  ASSERT_TRUE(cost.ok());
  auto result = simulate(load, std::move(*cost), o);
  ASSERT_TRUE(result.ok()) << result.error().message;
  for (const SimulatedRequest& request : result->requests) EXPECT_EQ(request.finish, FinishReason::stop);
  EXPECT_LT(result->stats.recomputed_tokens, 2 * tokens);
  EXPECT_LT(result->stats.preemptions, 2 * kRequests);
}

}  // namespace
}  // namespace millrace
