// Under skip_join_mlfq without swap, 1,200 requests with long prompts and short answers preempted each other 63,606
// times and recomputed 160 million tokens: a preempted stream lost all that it had computed, came back and was
// preempted again. On a machine without swap this policy took hours. The tests of the policy had swap, where preemption
// costs little.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/philox.h"
#include "simulate/simulation.h"

namespace millrace {
namespace {

TEST(PreemptionLivelock, LongPromptsWithShortAnswersAreNotRecomputedRepeatedly) {
  constexpr int64_t kRequests = 300;
  // Poisson arrivals, 4 per second; lognormal lengths with a median of 1,808 prompt tokens and 20 answer tokens.
  const auto normal = [](uint64_t stream, int64_t i) {
    double sum = -6;
    for (uint64_t k = 0; k < 12; ++k) sum += philox_uniform(3, stream, static_cast<uint64_t>(i) * 12 + k);
    return sum;
  };
  std::vector<double> arrivals;
  std::vector<int64_t> prompts, answers;
  double now = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < kRequests; ++i) {
    arrivals.push_back(now -= std::log1p(-philox_uniform(3, 1, static_cast<uint64_t>(i))) / 4);
    prompts.push_back(1 + static_cast<int64_t>(std::exp(7.5 + 0.6 * normal(2, i))));
    answers.push_back(1 + static_cast<int64_t>(std::exp(3 + 0.5 * normal(3, i))));
    tokens += prompts.back() + answers.back();
  }
  SimulatedLoad load;
  load.requests = kRequests;
  load.arrival_seconds = [&](int64_t i) { return arrivals[static_cast<size_t>(i)]; };
  load.request = [&](int64_t i) {
    Request request;
    request.prompt.assign(static_cast<size_t>(prompts[static_cast<size_t>(i)]), static_cast<TokenId>(i));
    request.known_tokens = request.max_tokens = answers[static_cast<size_t>(i)];
    return request;
  };
  EngineOptions o;
  o.context = 16384;
  o.max_streams = 32;
  o.kv_tokens = 30'000;
  o.batch_tokens = 4096;
  o.queue = 1 << 20;
  o.prefix_cache = false;
  o.policy = "skip_join_mlfq";
  auto cost = load_cost_model("opt-13b-a100");
  ASSERT_TRUE(cost.ok());
  auto result = simulate(load, std::move(*cost), o);
  ASSERT_TRUE(result.ok()) << result.error().message;
  for (const SimulatedRequest& request : result->requests) EXPECT_EQ(request.finish, FinishReason::stop);
  EXPECT_LT(result->stats.recomputed_tokens, tokens);
  EXPECT_LT(result->stats.preemptions, kRequests);
}

}  // namespace
}  // namespace millrace
