// Sends a load to an engine in this process and notes when each token comes.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "millrace/engine.h"
#include "workload/metrics.h"
#include "workload/request.h"

namespace millrace {

struct ReplayOptions {
  int64_t closed_loop =
      0;  // 0: each request at its arrival; else so many in flight all the time, whatever the arrivals say
  double patience = 0;  // requests that took longer are cancelled and count as failed; seconds, 0: none
  int64_t vocab = 0;
};

// What is asked for a recorded request: its length, not the model's wish.
Request make_replay_request(const WorkloadRequest& asked, int64_t vocab);

// One record a request, in the load's order. `progress(done, in flight)` may return false to stop: what is not finished
// by then is cancelled and counts as failed.
std::vector<RequestRecord> run_replay(Engine& engine, std::span<const WorkloadRequest> load,
                                      const ReplayOptions& options,
                                      const std::function<bool(int64_t, int64_t)>& progress);

}  // namespace millrace
