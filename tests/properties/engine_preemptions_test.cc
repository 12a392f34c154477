// The cost of preemptions is bounded under every policy: random bursty loads in too little memory, with a tier and
// without. A stream that has lost more than twice its tokens is not chosen as a victim (schedule/preemption.h), so a
// stream loses at most three times its final tokens, and all streams together at most three times the load. Between two
// preemptions a stream computes at least one new token, so each preemption costs more than the one before: k of them
// cost at least 0 + 1 + ... + (k - 1) tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "run/plan/kv_places.h"
#include "schedule/policy.h"
#include "simulate/simulation.h"

namespace millrace {
namespace {

struct BurstyLoad {
  uint64_t seed = 0;
  std::vector<double> arrivals;
  std::vector<int64_t> prompts, answers;
  int64_t tokens = 0;

  double draw(uint64_t what, uint64_t i) const { return philox_uniform(seed, what, i); }
  explicit BurstyLoad(uint64_t from) : seed(from) {
    // Bursts of up to 40 simultaneous requests; each load draws whether prompts and answers are short, long or mixed.
    const int64_t long_prompt = 100 + static_cast<int64_t>(draw(1, 0) * 5000),
                  long_answer = 5 + static_cast<int64_t>(draw(1, 1) * draw(1, 2) * 800);
    double now = 0;
    for (uint64_t burst = 0; burst < 6; ++burst) {
      now += draw(2, burst) * 30;
      const auto size = static_cast<int64_t>(1 + draw(3, burst) * 40);
      for (int64_t i = 0; i < size; ++i) {
        const auto at = static_cast<uint64_t>(prompts.size());
        arrivals.push_back(now + draw(4, at) * 0.01 * static_cast<double>(i));
        prompts.push_back(1 + static_cast<int64_t>(std::pow(draw(5, at), 3) * static_cast<double>(long_prompt)));
        answers.push_back(1 + static_cast<int64_t>(std::pow(draw(6, at), 3) * static_cast<double>(long_answer)));
        tokens += prompts.back() + answers.back();
      }
    }
    std::ranges::sort(arrivals);
  }

  SimulatedLoad simulated() const {
    SimulatedLoad load;
    load.requests = std::ssize(prompts);
    load.arrival_seconds = [this](int64_t i) { return arrivals[static_cast<size_t>(i)]; };
    load.request = [this](int64_t i) {
      const auto at = static_cast<size_t>(i);
      Request request;
      request.prompt.assign(static_cast<size_t>(prompts[at]), static_cast<TokenId>(i % 7));
      request.known_tokens = answers[at];
      request.max_tokens = answers[at] + (i % 3 == 0 ? 500 : 0);
      request.priority = i % 4;
      request.deadline_seconds = i % 5 == 0 ? 1e6 + static_cast<double>(i) : 0;
      request.tenant = i % 3 ? "a" : "b";
      request.sampling.seed = static_cast<uint64_t>(i);
      return request;
    };
    return load;
  }
};

class EnginePreemptions : public ::testing::TestWithParam<std::tuple<std::string, int64_t>> {};

// label(once): runs whole schedules for every policy, whose steps other properties take
TEST_P(EnginePreemptions, RecomputedTokensAreAtMostThreeTimesTheLoad) {
  const auto& [policy, swap_tokens] = GetParam();
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const BurstyLoad load(seed);
    EngineOptions o;
    o.context = 8192;
    o.max_streams = seed % 2 ? 8 : 32;
    o.resident_streams = seed % 3 ? 0 : 64;
    o.kv_tokens = 8192 + static_cast<int64_t>(load.draw(7, 0) * 20'000);
    o.batch_tokens = seed % 4 ? 2048 : 256;
    o.queue = 1 << 20;
    o.kv_tier = memory_tier(swap_tokens);
    o.prefix_cache = seed % 2 == 0;
    o.policy = policy;
    auto cost = load_cost_model("opt-13b-a100");
    ASSERT_TRUE(cost.ok());
    auto result = simulate(load.simulated(), std::move(*cost), o);
    ASSERT_TRUE(result.ok()) << "seed " << seed << ": " << result.error().message;
    int64_t most_preemptions = 0;
    for (size_t i = 0; i < result->requests.size(); ++i) {
      EXPECT_EQ(result->requests[i].finish, FinishReason::stop) << "seed " << seed << ", request " << i;
      most_preemptions +=
          1 + static_cast<int64_t>(std::ceil(
                  std::sqrt(6 * static_cast<double>(load.prompts[i] + load.answers[i]))));  // k (k - 1) / 2 <= 3 tokens
    }
    EXPECT_LE(result->stats.recomputed_tokens, 3 * load.tokens) << "seed " << seed;
    if (swap_tokens == 0) {
      EXPECT_LE(result->stats.preemptions, most_preemptions) << "seed " << seed;
    }
    EXPECT_EQ(result->stats.livelocks, 0);
  }
}

// The same with streams that drop tokens: what they had dropped is computed again, too, and counts as lost.
TEST(EnginePreemptionsEvicting, RecomputedTokensAreAtMostThreeTimesTheLoad) {
  int64_t preemptions = 0, evicted = 0;
  for (const char* prompt : {"whole", "evicted"}) {
    for (const int64_t swap_tokens : {0, 3000}) {
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        const BurstyLoad load(seed);
        EngineOptions o;
        o.context = 8192;
        o.max_streams = 32;
        o.kv_tokens = 8192;
        o.batch_tokens = seed % 2 ? 2048 : 256;
        o.queue = 1 << 20;
        o.kv_tier = memory_tier(swap_tokens);
        o.policy = "fcfs:reserve=prompt";
        o.evictor = std::string("streamingllm:sinks=4,window=300,slack=60,prompt=") + prompt;
        auto cost = load_cost_model("opt-13b-a100");
        ASSERT_TRUE(cost.ok());
        auto result = simulate(load.simulated(), std::move(*cost), o);
        ASSERT_TRUE(result.ok()) << "seed " << seed << ": " << result.error().message;
        for (const SimulatedRequest& request : result->requests) EXPECT_EQ(request.finish, FinishReason::stop);
        EXPECT_LE(result->stats.recomputed_tokens, 3 * load.tokens) << "seed " << seed;
        EXPECT_EQ(result->stats.livelocks, 0);
        preemptions += result->stats.preemptions;
        evicted += result->stats.evicted_tokens;
      }
    }
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(evicted, 100'000);
}

std::vector<std::string> every_policy() {
  std::vector<std::string> names;
  for (const auto& entry : policies().entries()) names.emplace_back(entry.info.name);
  names.emplace_back("fcfs:reserve=prompt");
  names.emplace_back("priority:preempt=true,reserve=prompt");
  names.emplace_back("skip_join_mlfq:quantum_ms=1,starve_ms=50,levels=12");  // the settings with the most preemptions
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, EnginePreemptions,
                         ::testing::Combine(::testing::ValuesIn(every_policy()), ::testing::Values(0, 3000, 100'000)),
                         [](const auto& one) {
                           std::string name =
                               std::get<0>(one.param) + "_swap_" + std::to_string(std::get<1>(one.param));
                           std::ranges::replace_if(
                               name, [](char c) { return c == ':' || c == '=' || c == ','; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace millrace
