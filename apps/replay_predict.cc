#include "replay_predict.h"

#include <algorithm>

#include "run/executors/simulated_executor.h"
#include "simulate/simulation.h"

namespace millrace {
namespace {

RequestRecord to_record(SimulatedRequest& from) {
  RequestRecord record;
  record.arrival = record.sent = from.arrival;
  record.tokens = std::move(from.tokens);
  record.finished = from.end;
  record.prompt_tokens = from.prompt_tokens;
  record.cached_tokens = from.cached_tokens;
  record.tenant = from.tenant;
  if (from.finish == FinishReason::error)
    record.error = from.refused;
  else if (from.finish == FinishReason::time_limit)
    record.error = "took too long";
  else if (from.finish == FinishReason::none)
    record.error = "did not end";
  return record;
}

}  // namespace

Result<std::vector<RequestRecord>> predict_replay(const std::string& cost, std::span<const WorkloadRequest> load,
                                                  const EngineOptions& options, const ReplayOptions& replay) {
  MILLRACE_TRY(auto model, load_cost_model(cost));
  std::vector<std::unique_ptr<CostModel>> costs;
  costs.push_back(std::move(model));
  EngineOptions engine = options;
  engine.record_plans.clear();  // the file already has the plans of the measured engine
  SimulatedLoad simulated;
  simulated.requests = static_cast<int64_t>(load.size());
  simulated.closed_loop = replay.closed_loop;
  simulated.keep_token_times = true;
  simulated.arrival_seconds = [&](int64_t i) { return load[static_cast<size_t>(i)].arrival_seconds; };
  simulated.request = [&](int64_t i) {
    const WorkloadRequest& from = load[static_cast<size_t>(i)];
    Request request;
    request.prompt = make_prompt(from, std::min(replay.vocab, kSimulatedVocab));
    request.max_tokens = request.known_tokens = std::max<int64_t>(1, from.output_tokens);
    request.time_limit_seconds = replay.patience;
    return request;
  };
  MILLRACE_TRY(auto result, simulate(simulated, std::move(costs), engine, {}));
  std::vector<RequestRecord> records;
  for (SimulatedRequest& request : result.requests) records.push_back(to_record(request));
  return records;
}

}  // namespace millrace
