// Small simulations in which every time and counter is computed by hand: a step takes 1 s plus 0.1 s per prompt or
// answer token.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "run/plan/kv_places.h"
#include "simulate/fairness_meter.h"
#include "simulate/simulation.h"
#include "simulate/small_machine_test.h"

namespace millrace {
namespace {

class PlainCost final : public CostModel {
 public:
  double step_seconds(const StepShape& shape) const override { return 1 + 0.1 * static_cast<double>(shape.tokens); }
  double swap_seconds(int64_t tokens) const override { return 0.01 * static_cast<double>(tokens); }
};

struct Arrival {
  double at;
  int64_t prompt, answer;
  const char* tenant = "";
  int64_t max_tokens = 0;  // 0: the answer's length
  TokenId token = -1;      // the prompt's token; -1: unique
};

SimulatedLoad make_load(std::vector<Arrival> arrivals) {
  SimulatedLoad load;
  load.requests = static_cast<int64_t>(arrivals.size());
  load.arrival_seconds = [arrivals](int64_t i) { return arrivals[static_cast<size_t>(i)].at; };
  load.request = [arrivals](int64_t i) {
    const Arrival& a = arrivals[static_cast<size_t>(i)];
    Request request;
    request.prompt.assign(static_cast<size_t>(a.prompt), a.token >= 0 ? a.token : static_cast<TokenId>(100 + i));
    request.known_tokens = a.answer;
    request.max_tokens = a.max_tokens > 0 ? a.max_tokens : a.answer;
    request.tenant = a.tenant;
    return request;
  };
  return load;
}

std::vector<std::unique_ptr<CostModel>> nodes(int64_t count) {
  std::vector<std::unique_ptr<CostModel>> costs;
  for (int64_t i = 0; i < count; ++i) costs.push_back(std::make_unique<PlainCost>());
  return costs;
}

SimulationResult run(const SimulatedLoad& load, int64_t count = 1, const SimulationOptions& options = {},
                     const EngineOptions& engine = testing::small_machine()) {
  auto result = simulate(load, nodes(count), engine, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(*result) : SimulationResult{};
}

std::string line(const SimulatedRequest& r) {
  return fmt::format("{:.2f} {:.2f} {:.2f} node {} {}/{}/{} gap {:.2f} {}{}", r.arrival, r.first_token, r.end, r.node,
                     r.prompt_tokens, r.cached_tokens, r.generated_tokens, r.worst_gap, finish_reason_name(r.finish),
                     r.preemptions ? fmt::format(" !{}", r.preemptions) : "");
}
std::vector<std::string> lines(const SimulationResult& result) {
  std::vector<std::string> out;
  for (const SimulatedRequest& r : result.requests) out.push_back(line(r));
  return out;
}
using Lines = std::vector<std::string>;

// 0.0  1:[10]*        2.0   first token of 1
// 2.0  1 2:[5]*       3.6   second of 1, first of 2 (came at 1)
// 3.6  1 2            4.8   third and last of 1, second and last of 2
// 10.0 3:[20]*        13.0  its only one
TEST(SimulationFigures, ThreeRequests) {
  SimulatedLoad load = make_load({{5, 10, 3}, {6, 5, 2}, {15, 20, 1}});
  load.keep_token_times = true;
  const SimulationResult result = run(load);
  EXPECT_EQ(lines(result),
            (Lines{"0.00 2.00 4.80 node 0 10/0/3 gap 1.60 stop", "1.00 3.60 4.80 node 0 5/0/2 gap 1.20 stop",
                   "10.00 13.00 13.00 node 0 20/0/1 gap 0.00 stop"}));
  ASSERT_EQ(result.gaps.size(), 3u);
  EXPECT_NEAR(result.gaps[0], 1.6, 1e-6);
  EXPECT_NEAR(result.gaps[1], 1.2, 1e-6);
  EXPECT_NEAR(result.gaps[2], 1.2, 1e-6);
  EXPECT_NEAR(result.seconds, 13, 1e-6);
  EXPECT_NEAR(result.busy_seconds, 2 + 1.6 + 1.2 + 3, 1e-6);
  EXPECT_NEAR(result.mean_running, (2 * 1 + 1.6 * 2) / 7.8, 1e-6);  // streams that remain after a step
  EXPECT_EQ(result.most_running, 2);
  ASSERT_EQ(result.requests[0].tokens.size(), 3u);
  EXPECT_NEAR(result.requests[0].tokens[1], 3.6, 1e-6);
  EXPECT_EQ(result.stats.steps, 4);
  EXPECT_EQ(result.stats.prompt_tokens, 35);
  EXPECT_EQ(result.stats.generated_tokens, 6);
  ASSERT_EQ(result.nodes.size(), 1u);
  const SimulatedNode& node = result.nodes[0];
  EXPECT_EQ(node.requests, 3);
  EXPECT_EQ(node.completed, 3);
  EXPECT_EQ(node.prompt_tokens, 35);
  EXPECT_EQ(node.output_tokens, 6);
  EXPECT_NEAR(node.busy_seconds, result.busy_seconds, 1e-9);
  EXPECT_NEAR(node.mean_running, result.mean_running, 1e-9);
  EXPECT_EQ(node.most_running, 2);
}

TEST(SimulationFigures, AnEmptyLoadTakesNoTime) {
  const SimulationResult result = run(make_load({}));
  EXPECT_EQ(result.busy_seconds, 0);
  EXPECT_EQ(result.mean_running, 0);
  EXPECT_EQ(result.nodes.at(0).mean_running, 0);
  EXPECT_EQ(result.most_running, 0);
  EXPECT_EQ(result.stats.kv_blocks, 64);
  EXPECT_NEAR(result.seconds, 0, 1e-6);
}

TEST(SimulationFigures, RoundRobinRouting) {
  const SimulationResult result = run(make_load({{0, 10, 1}, {0, 10, 2}, {0.5, 10, 1}, {0.5, 10, 1}}), 2);
  EXPECT_EQ(lines(result),
            (Lines{"0.00 2.00 2.00 node 0 10/0/1 gap 0.00 stop", "0.00 2.00 4.10 node 1 10/0/2 gap 2.10 stop",
                   "0.50 4.00 4.00 node 0 10/0/1 gap 0.00 stop", "0.50 4.10 4.10 node 1 10/0/1 gap 0.00 stop"}));
  EXPECT_EQ(result.nodes[0].requests, 2);
  EXPECT_EQ(result.nodes[1].output_tokens, 3);
  EXPECT_EQ(result.stats.kv_blocks, 128);
  EXPECT_EQ(result.stats.kv_blocks_free + result.stats.kv_blocks_cached, 128);
  EXPECT_EQ(result.stats.steps, 4);  // two run together
  EXPECT_EQ(result.most_running, 1);
}

// Each request goes to the node with the fewest open prompt tokens; among equals the fewest requests, then the first.
TEST(SimulationFigures, LeastLoadedRouting) {
  const SimulationResult result = run(make_load({{0, 20, 8},
                                                 {0.1, 6, 8},
                                                 {0.2, 6, 8},
                                                 {0.3, 8, 8},
                                                 {0.4, 1, 8},
                                                 {30, 3, 1},
                                                 {30.1, 2, 1},
                                                 {30.2, 1, 1},
                                                 {30.3, 1, 1}}),
                                      2, {.route = SimulatedRoute::least_loaded});
  std::vector<int64_t> chosen;
  for (const SimulatedRequest& r : result.requests) chosen.push_back(r.node);
  EXPECT_EQ(chosen, (std::vector<int64_t>{0, 1, 1, 1, 0, 0, 1, 1, 0}));
  // 20 of node 0 | 6 | 12 | 20, and more requests | 21 ... all have ended | 3 of node 0 | 2 | 3, and more requests
}

// The router sees an end only when it happens: at 1.99 s the first request (end: 2.0 s) is open, later it is not.
TEST(SimulationFigures, RouterSeesEndsWhenTheyHappen) {
  for (const auto& [at, node] : {std::pair(1.99, 1), {2.001, 0}}) {
    const SimulationResult result =
        run(make_load({{0, 10, 1}, {0, 9, 20}, {at, 2, 1}}), 2, {.route = SimulatedRoute::least_loaded});
    EXPECT_EQ(result.requests[2].node, node) << at;
  }
}

// To the node that holds at least half of the prompt; otherwise to the least loaded one.
TEST(SimulationFigures, PrefixRouting) {
  for (const auto& [prompt, node] : {std::pair(16, 0), {24, 0}, {25, 1}, {40, 1}}) {
    SimulatedLoad load = make_load({{0, 13, 1, "", 0, 7}, {20, 30, 30}, {20.01, 2, 40}, {21, 9, 1}});
    const auto plain = load.request;
    load.request = [plain, prompt](int64_t i) {
      Request request = plain(i);
      if (i == 2) request.prompt.assign(1, 1);
      if (i != 3) return request;
      request.prompt.assign(12, 7);  // three blocks that node 0 holds
      request.prompt.resize(static_cast<size_t>(prompt), 8);
      return request;
    };
    const SimulationResult result = run(load, 2, {.route = SimulatedRoute::prefix});
    EXPECT_EQ(result.requests[1].node, 0);  // nothing is open: the first node
    EXPECT_EQ(result.requests[2].node, 1);
    EXPECT_EQ(result.requests[3].node, node) << prompt;
    EXPECT_EQ(result.requests[3].cached_tokens, node == 0 ? 12 : 0) << prompt;
  }
}

TEST(SimulationFigures, ClosedLoopStartsTheNextWhenOneEnds) {
  SimulatedLoad load = make_load({{3, 10, 1}, {900, 10, 2}, {901, 10, 1}, {902, 10, 1}});
  load.closed_loop = 2;
  EXPECT_EQ(lines(run(load)),
            (Lines{"0.00 3.00 3.00 node 0 10/0/1 gap 0.00 stop", "0.00 3.00 5.10 node 0 10/0/2 gap 2.10 stop",
                   "3.00 5.10 5.10 node 0 10/0/1 gap 0.00 stop", "5.10 7.10 7.10 node 0 10/0/1 gap 0.00 stop"}));
  load.closed_loop = 1;
  EXPECT_EQ(lines(run(load)),
            (Lines{"0.00 2.00 2.00 node 0 10/0/1 gap 0.00 stop", "2.00 4.00 5.10 node 0 10/0/2 gap 1.10 stop",
                   "5.10 7.10 7.10 node 0 10/0/1 gap 0.00 stop", "7.10 9.10 9.10 node 0 10/0/1 gap 0.00 stop"}));
}

TEST(SimulationFigures, RejectedRequestsEndOnArrival) {
  SimulatedLoad load = make_load({{0, 10, 1}, {0.5, 64, 1}, {9, 10, 2, "", 1}});
  SimulationResult result = run(load);
  EXPECT_EQ(result.requests[1].finish, FinishReason::error);
  EXPECT_EQ(result.requests[1].refused,
            "prompt: 64 tokens do not leave room for an answer in a context of 64; shorten it or raise the context");
  EXPECT_EQ(result.requests[1].end, 0.5);
  EXPECT_EQ(result.requests[1].first_token, -1);
  EXPECT_EQ(result.nodes[0].requests, 3);
  EXPECT_EQ(result.nodes[0].completed, 2);
  EXPECT_EQ(result.nodes[0].prompt_tokens, 20);
  EXPECT_EQ(result.requests[2].finish, FinishReason::length);  // its answer was truncated
  EXPECT_EQ(result.requests[2].generated_tokens, 1);
  load.closed_loop = 1;  // a rejected request lets the next one start
  result = run(load);
  EXPECT_EQ(result.requests[2].finish, FinishReason::length);
  EXPECT_NEAR(result.requests[2].arrival, 2, 1e-6);
}

TEST(SimulationFigures, StopsAtTheGivenTime) {
  const SimulatedLoad load = make_load({{0, 10, 3}, {1, 5, 2}, {10, 20, 1}});
  for (const auto& [stop, tokens, arrived] :
       {std::tuple(2.0, 1, true), {1.5, 1, true}, {0.5, 1, false}, {3.7, 5, true}, {3.5, 3, true}}) {
    const SimulationResult result = run(load, 1, {.stop_seconds = stop});
    EXPECT_EQ(result.stats.generated_tokens, tokens) << stop;
    EXPECT_EQ(result.requests[1].prompt_tokens, arrived ? 5 : 0) << stop;
    EXPECT_EQ(result.requests[2].prompt_tokens, 0);
    EXPECT_EQ(result.requests[2].end, -1);
  }
}

TEST(SimulationFigures, ProgressCallbackCanStop) {
  std::vector<int64_t> ended;
  auto all = simulate(make_load({{0, 10, 1}}), nodes(1), testing::small_machine(), {}, [&](int64_t n) {
    ended.push_back(n);
    return true;
  });
  EXPECT_TRUE(all.ok());
  EXPECT_EQ(ended, (std::vector<int64_t>{0}));  // in the first iteration and every 1024th
  SimulatedLoad longer = make_load({{0, 10, 1}});
  longer.requests = 700;
  longer.arrival_seconds = [](int64_t i) { return 10.0 * static_cast<double>(i); };
  const auto request = longer.request;
  longer.request = [request](int64_t) { return request(0); };
  ended.clear();
  ASSERT_TRUE(simulate(longer, nodes(1), testing::small_machine(), {}, [&](int64_t n) {
                ended.push_back(n);
                return true;
              }).ok());
  EXPECT_EQ(ended, (std::vector<int64_t>{0, 512}));  // an arrival and a step per request
  const auto cancelled = simulate(longer, nodes(1), testing::small_machine(), {}, [](int64_t n) { return n == 0; });
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().kind, ErrorKind::cancelled);
  EXPECT_EQ(cancelled.error().message, "simulation: interrupted");
}

TEST(SimulationFigures, UnsupportedOptions) {
  const SimulatedLoad load = make_load({{0, 10, 1}});
  auto none = simulate(load, nodes(0), testing::small_machine(), {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, "simulation: needs a node");
  EngineOptions recorded = testing::small_machine();
  recorded.record_plans = "/nowhere/plans";
  auto plans = simulate(load, nodes(2), recorded, {});
  ASSERT_FALSE(plans.ok());
  EXPECT_EQ(plans.error().message, "plans: can be recorded of one node only");
  auto one = simulate(load, nodes(1), recorded, {});
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.error().message, "plans: /nowhere/plans cannot be written");
  auto route = find_simulated_route("best");
  ASSERT_FALSE(route.ok());
  EXPECT_EQ(route.error().kind, ErrorKind::user);
  EXPECT_EQ(route.error().message, "route: unknown 'best'; available: in_turn, prefix, least_loaded");
  EXPECT_EQ(*find_simulated_route("in_turn"), SimulatedRoute::in_turn);
  EXPECT_EQ(*find_simulated_route("prefix"), SimulatedRoute::prefix);
  EXPECT_EQ(*find_simulated_route("least_loaded"), SimulatedRoute::least_loaded);
}

// Two answers of a request: its first token is the earlier of both, its end the later.
TEST(SimulationFigures, SeveralAnswers) {
  SimulatedLoad load = make_load({{0, 10, 2}});
  const auto plain = load.request;
  load.request = [plain](int64_t i) {
    Request request = plain(i);
    request.n = 2;
    return request;
  };
  load.closed_loop = 1;
  const SimulationResult result = run(load);
  EXPECT_EQ(lines(result), (Lines{"0.00 2.00 4.30 node 0 10/9/4 gap 1.20 stop"}));
  EXPECT_EQ(result.nodes[0].completed, 1);
  EXPECT_EQ(result.nodes[0].output_tokens, 4);
  EXPECT_EQ(result.nodes[0].prompt_tokens, 10);
}

// While a stream is being swapped out and nothing runs, time advances to the end of the move.
TEST(SimulationFigures, SwappedStreams) {
  EngineOptions o = testing::small_machine();
  o.kv_tokens = 48;
  o.kv_tier = memory_tier(100);
  o.policy = "fcfs:reserve=prompt";
  o.prefix_cache = false;
  const SimulationResult result = run(make_load({{0, 20, 10}, {0, 20, 10}}), 1, {}, o);
  EXPECT_EQ(lines(result),
            (Lines{"0.00 4.20 15.43 node 0 20/0/10 gap 1.90 stop", "0.00 6.10 22.26 node 0 20/0/10 gap 7.06 stop !1"}));
  EXPECT_EQ(result.stats.preemptions, 1);
  EXPECT_EQ(result.stats.swapped_out_tokens, 23);
  EXPECT_EQ(result.stats.swapped_in_tokens, 23);
  EXPECT_EQ(result.stats.recomputed_tokens, 0);
}

TEST(SimulationFigures, FairnessWhileAllTenantsWait) {
  EngineOptions o = testing::small_machine();
  o.max_streams = 1;
  const SimulationResult result =
      run(make_load({{0, 10, 2, "a"}, {0, 10, 2, "a"}, {0, 10, 2, "b"}, {0, 10, 2, "b"}}), 1, {}, o);
  EXPECT_EQ(result.fairness.service,
            (std::map<std::string, double>{{"a", 28}, {"b", 28}}));  // prompts, and twice the answers
  EXPECT_NEAR(result.fairness.backlogged_seconds, 2.0 + 1.1, 1e-6);  // until the second request of `a` is admitted
  EXPECT_NEAR(result.fairness.difference, 2, 1e-6);
}

TEST(SimulationFigures, FairnessMeter) {
  FairnessMeter meter;
  meter.arrived("a");
  meter.tick(1);
  EXPECT_EQ(meter.result().backlogged_seconds, 0);  // one tenant alone
  meter.arrived("b");
  meter.tick(3);
  EXPECT_EQ(meter.result().backlogged_seconds, 2);
  meter.serve("a", 5);
  meter.tick(4);
  meter.serve("b", 8);
  meter.tick(4);
  meter.tick(2);  // another node's clock is behind
  EXPECT_EQ(meter.result().backlogged_seconds, 3);
  EXPECT_EQ(meter.result().difference, 8);  // from 5 to -3
  meter.started("b");
  meter.serve("b", 100);
  meter.tick(6);
  EXPECT_EQ(meter.result().backlogged_seconds, 3);
  EXPECT_EQ(meter.result().difference, 8);
  meter.arrived("b");
  meter.tick(7);
  meter.serve("a", 4);
  meter.tick(8);
  EXPECT_EQ(meter.result().backlogged_seconds, 5);
  EXPECT_EQ(meter.result().difference, 8);  // restarted
  meter.arrived("c");
  meter.serve("c", 30);
  meter.tick(9);
  meter.serve("c", 9);
  meter.tick(10);
  EXPECT_EQ(meter.result().difference, 9);
  EXPECT_EQ(meter.result().service, (std::map<std::string, double>{{"a", 9}, {"b", 108}, {"c", 39}}));
}

}  // namespace
}  // namespace millrace
