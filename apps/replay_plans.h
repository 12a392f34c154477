// A load through an engine whose steps somebody else has planned: `--record-plans` wrote the file, one plan a line.
// What ran is run again, step by step, whatever policy the flags name and whatever the clock says.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "replay_run.h"

namespace millrace {

struct PlannedReplay {
  std::vector<RequestRecord> records;  // in the load's order; a request arrives with the step that admits it
  int64_t steps = 0;
};

// Requests have the numbers 1, 2, ... in the load's order, without those that the engine does not take, as in the run
// that was recorded. `progress(done, in flight)` may return false to stop. Errors: user (the file; a plan that does not
// fit the requests, with its line; plans that end before the requests do, or go on after them), cancelled.
Result<PlannedReplay> replay_plans(EngineCore& core, std::span<const WorkloadRequest> load, int64_t vocab,
                                   const std::string& path, const std::function<bool(int64_t, int64_t)>& progress);

}  // namespace millrace
