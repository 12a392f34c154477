// The simulator is the engine on a virtual clock: results are repeatable, all requests are served, and the policies
// have the effects that their papers describe.
#include "simulate/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "run/plan/kv_places.h"
#include "schedule/policy.h"

namespace millrace {
namespace {

struct Load {
  int64_t requests = 200;
  double rate = 2;  // per second, Poisson
  int64_t prompt = 200, answer = 50;
  bool heavy_tail = false;  // every twentieth answer is twenty times as long
  int64_t max_tokens = 0;   // of the request; 0: the true length
  int tenants = 0;          // the first sends three times as many requests as the second
};

SimulatedLoad make_load(const Load& load) {
  std::vector<double> arrivals;
  double now = 0;
  for (int64_t i = 0; i < load.requests; ++i) {
    now -= std::log1p(-philox_uniform(1, 1, static_cast<uint64_t>(i))) / load.rate;
    arrivals.push_back(now);
  }
  SimulatedLoad out;
  out.requests = load.requests;
  out.arrival_seconds = [arrivals](int64_t i) { return arrivals[static_cast<size_t>(i)]; };
  out.request = [load](int64_t i) {
    auto draw = [&](uint64_t stream) { return philox_uniform(1, stream, static_cast<uint64_t>(i)); };
    Request request;
    request.prompt.assign(static_cast<size_t>(1 + draw(2) * 2 * static_cast<double>(load.prompt)),
                          static_cast<TokenId>(i));
    request.known_tokens = 1 + static_cast<int64_t>(draw(3) * 2 * static_cast<double>(load.answer));
    if (load.heavy_tail && draw(4) < 0.05) request.known_tokens *= 20;
    request.max_tokens = std::max(load.max_tokens, request.known_tokens);
    if (load.tenants > 0) request.tenant = draw(5) < 0.75 ? "busy" : "quiet";
    return request;
  };
  return out;
}

EngineOptions machine(const std::string& policy) {
  EngineOptions o;
  o.context = 4096;
  o.max_streams = 32;
  o.kv_tokens = 32768;
  o.batch_tokens = 2048;
  o.queue = 1 << 20;
  o.policy = policy;
  return o;
}

SimulationResult run(const Load& load, const EngineOptions& options, double stop = 0) {
  auto cost = load_cost_model("llama-7b-a100");
  EXPECT_TRUE(cost.ok());
  auto result = simulate(make_load(load), std::move(*cost), options, stop);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(*result) : SimulationResult{};
}

double mean_end(const SimulationResult& result) {
  double sum = 0;
  for (const auto& r : result.requests) sum += r.end - r.arrival;
  return sum / static_cast<double>(result.requests.size());
}

float gap_at(SimulationResult& result, double quantile) {
  std::ranges::sort(result.gaps);
  return result.gaps[static_cast<size_t>(quantile * static_cast<double>(result.gaps.size() - 1))];
}

TEST(Simulation, SameLoadGivesTheSameResult) {
  const Load load{.requests = 100};
  const SimulationResult a = run(load, machine("fcfs")), b = run(load, machine("fcfs"));
  EXPECT_EQ(a.gaps, b.gaps);
  EXPECT_EQ(a.seconds, b.seconds);
  ASSERT_EQ(a.requests.size(), 100u);
  EXPECT_GT(a.seconds, a.busy_seconds);
}

// label(once): simulates thousands of requests
TEST(Simulation, EveryPolicyServesAllRequestsInLittleMemory) {
  for (const auto& entry : policies().entries()) {
    for (int64_t swap : {0, 4000}) {
      EngineOptions o = machine(entry.info.name);
      o.kv_tokens = 4096;
      o.resident_streams = 64;
      o.kv_tier = memory_tier(swap);
      const SimulationResult result =
          run({.requests = 150, .rate = 20, .answer = 80, .heavy_tail = true, .max_tokens = 300}, o);
      ASSERT_EQ(result.requests.size(), 150u) << entry.info.name;
      for (const auto& r : result.requests) {
        ASSERT_EQ(r.finish, FinishReason::stop) << entry.info.name;
        ASSERT_GT(r.first_token, r.arrival);
        ASSERT_GE(r.end, r.first_token);
      }
      EXPECT_EQ(result.stats.kv_blocks_free + result.stats.kv_blocks_cached, result.stats.kv_blocks);
    }
  }
}

TEST(Simulation, UnreachableDeadlinesAreRejectedWithTheReason) {
  SimulatedLoad load = make_load({.requests = 100, .rate = 100});
  auto plain = load.request;
  load.request = [plain](int64_t i) {
    Request request = plain(i);
    request.deadline_seconds = 2;
    request.predicted_tokens = request.known_tokens;
    return request;
  };
  auto cost = load_cost_model("llama-7b-a100");
  auto result = simulate(load, std::move(*cost), machine("deadline"));
  ASSERT_TRUE(result.ok());
  int64_t refused = 0;
  for (const auto& r : result->requests) {
    refused += r.finish == FinishReason::error;
    if (r.finish == FinishReason::error) {
      EXPECT_NE(r.refused.find("deadline"), std::string::npos);
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 100);
}

std::vector<std::unique_ptr<CostModel>> machines(int64_t nodes) {
  std::vector<std::unique_ptr<CostModel>> costs;
  for (int64_t i = 0; i < nodes; ++i) {
    auto cost = load_cost_model("llama-7b-a100");
    EXPECT_TRUE(cost.ok());
    costs.push_back(std::move(*cost));
  }
  return costs;
}

TEST(Simulation, NodesShareALoadAndTheirSumsMatch) {
  const Load load{.requests = 200, .rate = 40};
  for (auto route : {SimulatedRoute::in_turn, SimulatedRoute::prefix, SimulatedRoute::least_loaded}) {
    auto result = simulate(make_load(load), machines(4), machine("fcfs"), {.route = route});
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result->nodes.size(), 4u);
    int64_t requests = 0, output = 0, steps = 0;
    for (const SimulatedNode& node : result->nodes) {
      EXPECT_GT(node.requests, 20);
      requests += node.requests, output += node.output_tokens, steps += node.stats.steps;
    }
    EXPECT_EQ(requests, 200);
    EXPECT_EQ(steps, result->stats.steps);
    int64_t generated = 0;
    for (const auto& r : result->requests) {
      ASSERT_EQ(r.finish, FinishReason::stop);
      ASSERT_GT(r.first_token, r.arrival);
      generated += r.generated_tokens;
    }
    EXPECT_EQ(output, generated);
  }
  EXPECT_LT(mean_end(*simulate(make_load(load), machines(4), machine("fcfs"), {})),
            mean_end(run(load, machine("fcfs"))));
}

// Nodes are independent: with round-robin routing, node 0 of 2 behaves like a single engine that gets every other
// request.
TEST(Simulation, NodesAreIndependent) {
  const SimulatedLoad all = make_load({.requests = 100, .rate = 20});
  auto two = simulate(all, machines(2), machine("fcfs"), {});
  ASSERT_TRUE(two.ok());
  SimulatedLoad half;
  half.requests = 50;
  half.arrival_seconds = [&](int64_t i) { return all.arrival_seconds(2 * i); };
  half.request = [&](int64_t i) { return all.request(2 * i); };
  auto alone = simulate(half, machines(1), machine("fcfs"), {});
  ASSERT_TRUE(alone.ok());
  for (size_t i = 0; i < 50; ++i) EXPECT_NEAR(two->requests[2 * i].end, alone->requests[i].end, 1e-6) << i;
}

TEST(Simulation, RoutingByPrefixFindsTheNodeThatHasIt) {
  SimulatedLoad load;
  load.requests = 120;
  load.arrival_seconds = [](int64_t i) { return static_cast<double>(i); };
  load.request = [](int64_t i) {  // seven conversations on four nodes
    Request request;
    request.prompt.assign(512, static_cast<TokenId>(i % 7));
    request.known_tokens = request.max_tokens = 4;
    return request;
  };
  auto cached = [&](SimulatedRoute route) {
    auto result = simulate(load, machines(4), machine("fcfs"), {.route = route});
    EXPECT_TRUE(result.ok());
    int64_t tokens = 0;
    for (const SimulatedNode& node : result->nodes) tokens += node.cached_tokens;
    return tokens;
  };
  EXPECT_EQ(cached(SimulatedRoute::prefix),
            (120 - 7) * 496);  // all but the last block, which holds the token that runs
  EXPECT_EQ(cached(SimulatedRoute::in_turn), (120 - 28) * 496);
}

TEST(Simulation, SimultaneousRequestsComputeTheirCommonPrefixOnce) {
  constexpr int64_t kRequests = 64, kPrefix = 1024, kOwn = 40;
  SimulatedLoad load;
  load.requests = kRequests;
  load.arrival_seconds = [](int64_t) { return 0.0; };
  load.request = [](int64_t i) {
    Request request;
    request.prompt.assign(kPrefix, 7);
    request.prompt.insert(request.prompt.end(), kOwn, static_cast<TokenId>(100 + i));
    request.known_tokens = request.max_tokens = 16;
    return request;
  };
  for (const char* policy : {"fcfs", "decode_first", "stall_free", "vtc"}) {
    EngineOptions o = machine(policy);
    o.max_streams = kRequests;
    o.batch_tokens = 512;
    auto cost = load_cost_model("llama-7b-a100");
    ASSERT_TRUE(cost.ok());
    auto result = simulate(load, std::move(*cost), o);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->stats.prompt_tokens, kPrefix + kRequests * kOwn) << policy;
    EXPECT_EQ(result->stats.cached_tokens, (kRequests - 1) * kPrefix) << policy;
  }
}

TEST(Simulation, ClosedLoopKeepsItsNumberInFlight) {
  SimulatedLoad load = make_load({.requests = 60, .rate = 1e-3});
  load.closed_loop = 5;
  load.keep_token_times = true;
  auto result = simulate(load, machines(1), machine("fcfs"), {});
  ASSERT_TRUE(result.ok());
  EXPECT_LT(result->seconds - result->busy_seconds, 1e-3);  // no time is spent waiting for arrivals
  std::vector<std::pair<double, int>> changes;
  for (const auto& r : result->requests) {
    changes.push_back({r.arrival, 1}), changes.push_back({r.end, -1});
    ASSERT_EQ(static_cast<int64_t>(r.tokens.size()), r.generated_tokens);
    EXPECT_EQ(r.tokens.front(), r.first_token);
    EXPECT_EQ(r.tokens.back(), r.end);
  }
  std::ranges::sort(changes);  // an end comes before the arrival that it makes room for
  int in_flight = 0, most = 0;
  for (const auto& change : changes) most = std::max(most, in_flight += change.second);
  EXPECT_EQ(most, 5);
  EXPECT_EQ(in_flight, 0);
}

// Agrawal et al., 2024: the longest times between tokens are those in which another stream's prompt ran.
TEST(Simulation, StallFreeBoundsTheTimeBetweenTokens) {
  const Load load{.requests = 150, .rate = 4, .prompt = 1500, .answer = 100};
  SimulationResult stalling = run(load, machine("prefill_first")), even = run(load, machine("stall_free:tbt_ms=40"));
  EXPECT_GT(gap_at(stalling, 0.99), 2 * gap_at(even, 0.99));
  EXPECT_LT(gap_at(even, 0.99), 0.045f);
}

// Wu et al., 2023: among answers of very different lengths, the short ones need not wait for the long ones.
// label(once): simulates thousands of requests
TEST(Simulation, SkipJoinMlfqEndsRequestsSooner) {
  const Load load{.requests = 300, .rate = 12, .prompt = 50, .answer = 60, .heavy_tail = true};
  EngineOptions first_come = machine("fcfs"), queues = machine("skip_join_mlfq:quantum_ms=200,starve_ms=1000000");
  first_come.max_streams = queues.max_streams = 8;
  queues.resident_streams = 128;
  EXPECT_LT(mean_end(run(load, queues)), 0.8 * mean_end(run(load, first_come)));
}

// Sheng et al., 2024: while both tenants have requests waiting, the difference in service is bounded, whatever they
// send.
TEST(Simulation, VtcBoundsTheDifferenceInService) {
  const Load load{.requests = 600, .rate = 50, .prompt = 100, .answer = 100, .tenants = 2};
  const SimulationResult shared = run(load, machine("vtc"), 20), greedy = run(load, machine("fcfs"), 20);
  EXPECT_GT(shared.fairness.backlogged_seconds, 5);
  EXPECT_LT(shared.fairness.difference, 0.35 * greedy.fairness.difference);
}

// Kwon et al., 2023: paging fits more streams than reserving the longest answer.
TEST(Simulation, PagingFitsMoreStreamsThanReservations) {
  const Load load{.requests = 200, .rate = 100, .prompt = 100, .answer = 50, .max_tokens = 2000};
  EngineOptions paged = machine("fcfs:reserve=prompt"), reserved = machine("orca"),
                oracle = machine("orca:room=oracle");
  for (EngineOptions* o : {&paged, &reserved, &oracle}) o->max_streams = 256, o->kv_tokens = 16384, o->context = 2304;
  const double paging = run(load, paged).mean_running, reserving = run(load, reserved).mean_running,
               knowing = run(load, oracle).mean_running;
  EXPECT_GT(paging, 2 * reserving);
  EXPECT_GT(knowing, reserving);
}

}  // namespace
}  // namespace millrace
