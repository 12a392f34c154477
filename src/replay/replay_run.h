// Sends a load to an in-process engine and records the time of each token.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "millrace/engine.h"
#include "workload/metrics.h"
#include "workload/request.h"

namespace millrace {

struct ReplayOptions {
  // Number of requests to keep in flight, ignoring arrival times; 0: send each request at its arrival time.
  int64_t closed_loop = 0;
  double patience = 0;  // seconds after which a request is cancelled and counts as failed; 0: unlimited
  int64_t vocab = 0;
};

// The request for a recorded one: generates exactly the recorded number of tokens.
Request make_replay_request(const WorkloadRequest& from, int64_t vocab);

// One record per request, in the load's order. `progress(done, in flight)` may return false to stop; unfinished
// requests are then cancelled and count as failed.
std::vector<RequestRecord> run_replay(Engine& engine, std::span<const WorkloadRequest> load,
                                      const ReplayOptions& options,
                                      const std::function<bool(int64_t, int64_t)>& progress);

}  // namespace millrace
