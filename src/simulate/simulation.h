// Simulation: runs a load of timed requests through the engine's own loop on a virtual clock (simulated_executor.h),
// and reports the times of each request. Deterministic: the same load, options and cost model give the same result on
// any machine.
//
//   arrivals -> router -> node 0: engine, prefix index, tier     each node's clock advances with its own steps; the
//                     \-> node 1: ...                            node whose clock is behind steps next
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

// The load, one request at a time, so that prompts need not all be in memory at once. Arrivals ascend, seconds.
struct SimulatedLoad {
  int64_t requests = 0;
  std::function<double(int64_t)> arrival_seconds;
  std::function<Request(int64_t)> request;
  int64_t closed_loop = 0;        // > 0: number of requests in flight at any time; arrival times are ignored
  bool keep_token_times = false;  // fill SimulatedRequest::tokens
};

// Chooses the node of a request. The router knows which requests it sent where and which of them have ended; for
// `prefix` it also knows the contents of the nodes' caches.
enum class SimulatedRoute {
  in_turn,  // request i to node i mod N
  prefix,   // the node that has cached most of the prompt, if that is at least half of it; otherwise as least_loaded
  least_loaded,  // to the node with the fewest prompt tokens of open requests
};
Result<SimulatedRoute> find_simulated_route(const std::string& name);

struct SimulationOptions {
  SimulatedRoute route = SimulatedRoute::in_turn;
  std::function<std::unique_ptr<SchedulerPolicy>()>
      policy;               // makes one for each node, instead of the one that the engine's options name; may be null
  double stop_seconds = 0;  // > 0: the simulation ends at that time, and requests still open have no end
  SimulatedModel model = {};
};

// Seconds of the virtual clock, which starts at 0.
struct SimulatedRequest {
  double arrival = 0;
  double first_token = -1;  // -1: none
  double end = -1;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, preemptions = 0;
  double worst_gap = 0;  // longest time between two of its tokens
  int64_t node = 0;
  std::vector<double> tokens;                // time of each token, if requested
  FinishReason finish = FinishReason::none;  // error: refused, with the reason in `refused`
  std::string tenant, refused;
  ErrorKind refusal = ErrorKind::internal;  // kind of error of a refused request
};

// Service of the tenants while all of them had requests waiting, after Sheng et al., 2024: admitted prompt tokens plus
// twice the answer tokens. Over any such interval, the service of two tenants differs by at most `difference`.
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
  std::vector<float> gaps;  // between tokens of a stream, all of them
  EngineStats stats;        // sums over the nodes, like the next fields
  double seconds = 0;       // from the first arrival to the last end
  double busy_seconds = 0;  // in steps
  double mean_running = 0;  // streams of a node that held blocks, over the busy time
  int64_t most_running = 0;
  std::vector<SimulatedNode> nodes;
  Fairness fairness;
};

// Simulates one node for each cost model, each with its own engine, memory and cache. `progress` is called from time to
// time with the number of ended requests; false cancels. Errors: user (options), cancelled, internal (a live-lock: a
// fault of the policy).
Result<SimulationResult> simulate(const SimulatedLoad& load, std::vector<std::unique_ptr<CostModel>> costs,
                                  const EngineOptions& engine, const SimulationOptions& options,
                                  const std::function<bool(int64_t)>& progress = {});
// Simulates one node.
Result<SimulationResult> simulate(const SimulatedLoad& load, std::unique_ptr<CostModel> cost,
                                  const EngineOptions& engine, double stop_seconds = 0);

}  // namespace millrace
