// Simulations at the edges of their rules: moments that fall together, equal nodes, answers that end while they wait,
// and a policy that makes no progress while requests still arrive. A step takes 1 s and 0.1 s a token.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "run/executors/simulated_executor.h"
#include "simulate/simulation.h"
#include "simulate/small_machine_test.h"

namespace millrace {
namespace {

class EdgeCost final : public CostModel {
 public:
  explicit EdgeCost(double scale) : scale_(scale) {}
  double step_seconds(const StepShape& shape) const override {
    return scale_ * (1 + 0.1 * static_cast<double>(shape.tokens));
  }
  double swap_seconds(int64_t tokens) const override { return scale_ * static_cast<double>(tokens); }

 private:
  double scale_;
};

struct Coming {
  double at;
  int64_t prompt, answer;
  const char* tenant = "";
  double time_limit = 0;
};

Request edge_request(int64_t prompt, int64_t answer, TokenId token) {
  Request request;
  request.prompt.assign(static_cast<size_t>(prompt), token);
  request.known_tokens = request.max_tokens = answer;
  return request;
}

SimulatedLoad edge_load(std::vector<Coming> all) {
  SimulatedLoad load;
  load.requests = std::ssize(all);
  load.arrival_seconds = [all](int64_t i) { return all[static_cast<size_t>(i)].at; };
  load.request = [all](int64_t i) {
    const Coming& one = all[static_cast<size_t>(i)];
    Request request = edge_request(one.prompt, one.answer, static_cast<TokenId>(100 + i));
    request.tenant = one.tenant;
    request.time_limit_seconds = one.time_limit;
    return request;
  };
  return load;
}

Result<SimulationResult> try_run(const SimulatedLoad& load, int64_t nodes, const SimulationOptions& options = {},
                                 const EngineOptions& engine = testing::small_machine(), double scale = 1) {
  std::vector<std::unique_ptr<CostModel>> costs;
  for (int64_t i = 0; i < nodes; ++i) costs.push_back(std::make_unique<EdgeCost>(scale));
  return simulate(load, std::move(costs), engine, options);
}

SimulationResult run_edge(const SimulatedLoad& load, int64_t nodes, const SimulationOptions& options = {},
                          const EngineOptions& engine = testing::small_machine(), double scale = 1) {
  auto result = try_run(load, nodes, options, engine, scale);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(*result) : SimulationResult{};
}

TEST(SimulationEdges, TheClockBeginsWithTheOnlyRequest) {
  const SimulationResult result = run_edge(edge_load({{50, 10, 1}}), 1);
  EXPECT_EQ(result.requests[0].arrival, 0);
  EXPECT_NEAR(result.requests[0].end, 2, 1e-6);
  EXPECT_NEAR(result.seconds, 2, 1e-6);
}

// A request that comes at the end of the simulation is not taken any more; one that runs then has no end.
TEST(SimulationEdges, TheEndIsNoPartOfTheSimulation) {
  const SimulationResult result = run_edge(edge_load({{0, 10, 1}, {3, 5, 9}, {5, 7, 1}}), 1, {.stop_seconds = 5});
  EXPECT_EQ(result.requests[1].prompt_tokens, 5);
  EXPECT_NEAR(result.requests[1].first_token, 4.5, 1e-6);
  EXPECT_EQ(result.requests[1].end, -1);
  EXPECT_EQ(result.requests[1].finish, FinishReason::none);
  EXPECT_EQ(result.requests[2].prompt_tokens, 0);
}

TEST(SimulationEdges, MeansOfLessThanASecond) {
  const SimulationResult result =
      run_edge(edge_load({{0, 10, 3}, {0, 10, 3}}), 1, {}, testing::small_machine(), 0.001);  // 3, 1.2 and 1.2 ms
  EXPECT_NEAR(result.busy_seconds, 0.0054, 1e-6);
  EXPECT_NEAR(result.mean_running, 2 * 4.2 / 5.4, 1e-3);
  EXPECT_NEAR(result.nodes.at(0).mean_running, 2 * 4.2 / 5.4, 1e-3);
}

// Two nodes whose steps end at the same time: the first node's next step is the first one.
TEST(SimulationEdges, OfNodesAtTheSameTimeTheFirstSteps) {
  const SimulationResult result = run_edge(edge_load({{0, 10, 2}, {0, 10, 2}, {1, 10, 1}, {1, 20, 1}}), 2);
  ASSERT_EQ(result.gaps.size(), 2u);
  EXPECT_NEAR(result.gaps[0], 1 + 0.1 * 11, 1e-6);
  EXPECT_NEAR(result.gaps[1], 1 + 0.1 * 21, 1e-6);
}

// In a closed loop a request comes in the moment in which another one ends: that one is not open any more.
TEST(SimulationEdges, ARequestKnowsWhatEndsWithItsArrival) {
  SimulatedLoad load = edge_load({{0, 10, 1}, {0, 9, 20}, {0, 2, 1}});
  load.closed_loop = 2;
  const SimulationResult result = run_edge(load, 2, {.route = SimulatedRoute::least_loaded});
  EXPECT_EQ(result.requests[0].end, result.requests[2].arrival);
  EXPECT_EQ(result.requests[1].node, 1);
  EXPECT_EQ(result.requests[2].node, 0);
}

// Where two nodes have as much of a prompt, the least loaded takes it, and of equals the first.
TEST(SimulationEdges, OfNodesWithThePrefixTheLeastLoaded) {
  SimulatedLoad load = edge_load({{0, 13, 1}, {0, 13, 1}, {20, 13, 9}, {20.5, 13, 1}});
  load.request = [](int64_t i) { return edge_request(13, i == 2 ? 9 : 1, 7); };
  const SimulationResult result = run_edge(load, 2, {.route = SimulatedRoute::prefix});
  std::vector<int64_t> nodes, cached;
  for (const SimulatedRequest& r : result.requests) nodes.push_back(r.node), cached.push_back(r.cached_tokens);
  EXPECT_EQ(nodes, (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_EQ(cached, (std::vector<int64_t>{0, 0, 12, 12}));
}

// A request that ends in the queue is no longer one that waits: from then on the tenants are not all waiting.
TEST(SimulationEdges, ATenantWhoseRequestEndsInTheQueueWaitsNoMore) {
  EngineOptions o = testing::small_machine();
  o.max_streams = 1;
  const SimulationResult result =
      run_edge(edge_load({{0, 10, 5, "a"}, {0, 10, 1, "a"}, {0, 10, 1, "b", 1.0}}), 1, {}, o);
  EXPECT_EQ(result.requests[2].finish, FinishReason::time_limit);
  EXPECT_EQ(result.requests[2].first_token, -1);
  EXPECT_NEAR(result.fairness.backlogged_seconds, 2.0, 1e-6);
  EXPECT_EQ(result.fairness.service.at("b"), 0);
}

// The token of id 0 is a token like others.
TEST(SimulationEdges, TheFirstTokenOfTheVocabularyCounts) {
  const auto token = [](uint64_t seed, uint64_t position) {
    return philox4x32(seed, position, 1)[0] % static_cast<uint32_t>(kSimulatedVocab);
  };
  constexpr uint64_t kSeed = 2563833;
  ASSERT_EQ(token(kSeed, 0), 0u);
  SimulatedLoad load = edge_load({{0, 10, 2}});
  load.keep_token_times = true;
  load.request = [](int64_t) {
    Request request = edge_request(10, 2, 7);
    request.sampling.seed = kSeed;
    return request;
  };
  const SimulationResult result = run_edge(load, 1);
  ASSERT_EQ(result.requests[0].tokens.size(), 2u);
  EXPECT_NEAR(result.requests[0].first_token, 2, 1e-6);
  EXPECT_EQ(result.gaps.size(), 1u);
}

// Runs nothing once two streams are there.
class TooPolite final : public SchedulerPolicy {
 public:
  void share(const ScheduleView& view, int64_t, std::vector<Share>& out) override {
    if (view.running.size() == 1) out.push_back({view.running.front(), view.running.front()->remaining()});
  }
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return nullptr; }
};

// Time goes on with the arrivals though nothing runs; after 65 such steps the simulation ends with the reason.
TEST(SimulationEdges, ALiveLockEndsItThoughRequestsStillArrive) {
  std::vector<Coming> all;
  for (int i = 0; i < 100; ++i) all.push_back({static_cast<double>(i) / 4, 4, 5});
  const SimulationOptions options{.policy = [] { return std::make_unique<TooPolite>(); }};
  EngineOptions engine = testing::small_machine();
  engine.max_streams = 200;
  engine.batch_tokens = 200;
  const auto result = try_run(edge_load(all), 1, options, engine);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::internal);
  EXPECT_EQ(result.error().message,
            "simulation: live-lock under policy under test at second 13.500: nothing ran in 65 steps though 54 streams "
            "are open; 0 preemptions and 0 tokens computed again so far");
  const auto two = try_run(edge_load({{0, 4, 5}, {0, 4, 5}}), 1, options);
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.error().message,
            "simulation: live-lock under policy under test at second 0.000: streams are open, none of them runs, and "
            "nothing is under way; 0 preemptions and 0 tokens computed again so far");
}

// Steps that only compute or copy documents are no standstill, even where no other request comes.
TEST(SimulationEdges, AStreamWaitsForItsDocuments) {
  SimulatedLoad load = edge_load({{0, 1, 2}, {1000, 1, 2}});
  load.request = [](int64_t i) {
    Request request = edge_request(1, 2, 9);
    for (const int64_t d : {i, 1 - i}) {
      request.documents.push_back({std::ssize(request.prompt), std::ssize(request.prompt) + 100});
      request.prompt.insert(request.prompt.end(), 100, static_cast<TokenId>(20 + d));
    }
    request.prompt.insert(request.prompt.end(), 3, 7);
    return request;
  };
  for (const char* format : {"f16", "kivi:bits=4"}) {
    EngineOptions o = testing::small_machine();
    o.context = 256;
    o.kv_tokens = 2048;
    o.document_context = "kvlink";
    o.kv_format = format;
    const SimulationResult result = run_edge(load, 1, {}, o);
    ASSERT_EQ(result.requests.size(), 2u);
    for (const SimulatedRequest& one : result.requests) EXPECT_EQ(one.finish, FinishReason::stop) << format;
    EXPECT_GT(result.requests[0].first_token, 20) << format;        // of 0.1 s a token
    EXPECT_LT(result.requests[1].first_token, 1000 + 4) << format;  // copies take no time
  }
}

}  // namespace
}  // namespace millrace
