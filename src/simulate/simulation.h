// Simulation: runs a load of timed requests through the engine's own loop on a virtual clock (simulated_executor.h),
// and reports the times of each request. Deterministic: equal loads, options and cost models give equal results on any
// machine.
//
//   arrivals -> router -> node 0: engine, prefix index, tier     Each node's clock advances with its own steps. The
//                     \-> node 1: ...                            node with the earliest clock runs the next step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "millrace/engine.h"
#include "run/executors/simulated_executor.h"
#include "schedule/cost_model.h"
#include "schedule/policy.h"

namespace millrace {

// The load. Requests are created one at a time, so that not all prompts are in memory at once. Arrival times ascend.
struct SimulatedLoad {
  int64_t requests = 0;
  std::function<double(int64_t)> arrival_seconds;
  std::function<Request(int64_t)> request;
  int64_t closed_loop = 0;        // > 0: constant number of requests in flight; arrival times are ignored
  bool keep_token_times = false;  // fill SimulatedRequest::tokens
};

// How the router chooses the node of a request. The router knows the open requests of each node; with `prefix` it also
// knows the contents of the nodes' caches.
enum class SimulatedRoute {
  in_turn,       // request i runs on node i mod N
  prefix,        // the node that has cached most of the prompt, if it has at least half of it; else like least_loaded
  least_loaded,  // the node whose open requests have the fewest prompt tokens
};
Result<SimulatedRoute> find_simulated_route(const std::string& name);

struct SimulationOptions {
  SimulatedRoute route = SimulatedRoute::in_turn;
  // Creates the policy of each node; null: the policy that the engine's options name.
  std::function<std::unique_ptr<SchedulerPolicy>()> policy;
  double stop_seconds = 0;  // > 0: the simulation ends at this time; open requests then have no `end`
  SimulatedModel model = {};
};

// The outcome of one request. Times are seconds of the virtual clock, which starts at 0.
struct SimulatedRequest {
  double arrival = 0;
  double first_token = -1;  // -1: no token
  double end = -1;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, preemptions = 0;
  double worst_gap = 0;  // longest time between two consecutive tokens
  int64_t node = 0;
  std::vector<double> tokens;                // time of each token, if requested
  FinishReason finish = FinishReason::none;  // error: the request was refused; `refused` is the reason
  std::string tenant, refused;
  ErrorKind refusal = ErrorKind::internal;  // kind of error of a refused request
};

// Service of the tenants while all of them had waiting requests, after Sheng et al., 2024. Service is admitted prompt
// tokens plus twice the answer tokens. Over any interval in which all tenants had waiting requests, the service of two
// tenants differs by at most `difference`.
struct Fairness {
  double backlogged_seconds = 0;
  double difference = 0;
  std::map<std::string, double> service;  // over the whole simulation
};

struct SimulatedNode {
  int64_t requests = 0, completed = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // tokens of completed requests
  double busy_seconds = 0, mean_running = 0;
  int64_t most_running = 0;
  EngineStats stats;
};

struct SimulationResult {
  std::vector<SimulatedRequest> requests;
  std::vector<float> gaps;  // all times between consecutive tokens of a stream
  EngineStats stats;        // sums over the nodes
  double seconds = 0;       // from the first arrival to the last end
  double busy_seconds = 0;  // time in steps, summed over the nodes
  double mean_running = 0;  // streams of a node that held blocks, on average over the busy time
  int64_t most_running = 0;
  std::vector<SimulatedNode> nodes;
  Fairness fairness;
};

// Simulates one node per cost model. Each node has its own engine, memory and cache. `progress` is called from time to
// time with the number of ended requests and returns false to cancel. Errors: user (options), cancelled, internal (a
// live-lock, which is a fault of the policy).
Result<SimulationResult> simulate(const SimulatedLoad& load, std::vector<std::unique_ptr<CostModel>> costs,
                                  const EngineOptions& engine, const SimulationOptions& options,
                                  const std::function<bool(int64_t)>& progress = {});
// Simulates one node.
Result<SimulationResult> simulate(const SimulatedLoad& load, std::unique_ptr<CostModel> cost,
                                  const EngineOptions& engine, double stop_seconds = 0);

}  // namespace millrace
