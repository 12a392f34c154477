// Simulation: a load of timed requests through the engine's own loop on a virtual clock (simulated_executor.h), and
// what became of each request. Deterministic: the same load, options and cost model give the same result anywhere.
//
//   arrivals -> router -> node 0: engine, prefix index, tier     each node's clock moves by its own steps, and whose
//                     \-> node 1: ...                            clock is behind steps next
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "millrace/engine.h"
#include "schedule/cost_model.h"
#include "schedule/policy.h"

namespace millrace {

// The load, one request at a time, so that prompts need not all be in memory at once. Arrivals ascend, seconds.
struct SimulatedLoad {
  int64_t requests = 0;
  std::function<double(int64_t)> arrival_seconds;
  std::function<Request(int64_t)> request;
  int64_t closed_loop = 0;        // > 0: so many in flight all the time, whatever the arrivals say
  bool keep_token_times = false;  // fill SimulatedRequest::tokens
};

// Which node a request goes to. The router knows what it sent where and what has ended, and for `prefix` what the
// nodes' caches hold.
enum class SimulatedRoute {
  in_turn,       // request i to node i mod N
  prefix,        // to the node that holds most of the prompt, when that is half of it or more; else as least_loaded
  least_loaded,  // to the node with the fewest prompt tokens that have not ended
};
Result<SimulatedRoute> find_simulated_route(const std::string& name);

struct SimulationOptions {
  SimulatedRoute route = SimulatedRoute::in_turn;
  std::function<std::unique_ptr<SchedulerPolicy>()>
      policy;               // for each node, one that is tried out; null: the engine's option
  double stop_seconds = 0;  // > 0 ends the simulation at that moment; what has not ended by then has no end
};

// Seconds of the virtual clock; the first moment is 0.
struct SimulatedRequest {
  double arrival = 0;
  double first_token = -1;  // -1: never came
  double end = -1;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, preemptions = 0;
  double worst_gap = 0;  // longest time between two of its tokens
  int64_t node = 0;
  std::vector<double> tokens;                // when each came, if asked for
  FinishReason finish = FinishReason::none;  // error: refused, with the reason in `refused`
  std::string tenant, refused;
};

// Service that tenants got while all of them had somebody waiting, after Sheng et al., 2024: prompt tokens that were
// admitted and twice the answer tokens. Over any interval of such a time, two tenants' service differs by at most
// `difference`.
struct Fairness {
  double backlogged_seconds = 0;
  double difference = 0;
  std::map<std::string, double> service;  // over the whole simulation
};

struct SimulatedNode {
  int64_t requests = 0, completed = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // of completed requests
  double busy_seconds = 0, mean_running = 0;
  int64_t most_running = 0;
  EngineStats stats;
};

struct SimulationResult {
  std::vector<SimulatedRequest> requests;
  std::vector<float> gaps;  // between tokens of a stream, all of them
  EngineStats stats;        // sums over the nodes, as the next ones
  double seconds = 0;       // from the first arrival to the last end
  double busy_seconds = 0;  // in steps
  double mean_running = 0;  // streams of a node that held blocks, over the busy time
  int64_t most_running = 0;
  std::vector<SimulatedNode> nodes;
  Fairness fairness;
};

// One node for each cost model, each with an engine, a memory and a cache of its own. `progress` is called now and then
// with the requests that have ended; false gives up. Errors: user (options), cancelled,
// internal (streams no longer come forward, or wait for nothing: the policy is at fault).
Result<SimulationResult> simulate(const SimulatedLoad& load, std::vector<std::unique_ptr<CostModel>> costs,
                                  const EngineOptions& engine, const SimulationOptions& options,
                                  const std::function<bool(int64_t)>& progress = {});
// The same on one node.
Result<SimulationResult> simulate(const SimulatedLoad& load, std::unique_ptr<CostModel> cost,
                                  const EngineOptions& engine, double stop_seconds = 0);

}  // namespace millrace
