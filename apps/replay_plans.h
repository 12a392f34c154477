// Replays recorded plans: runs a load through an engine with the steps in a file written by `--record-plans`, one plan
// per line, independent of policy and clock.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "replay/replay_run.h"

namespace millrace {

struct PlannedReplay {
  std::vector<RequestRecord> records;  // in the load's order; a request arrives with the step that admits it
  int64_t steps = 0;
};

// Requests are numbered 1, 2, ... in the load's order, skipping those that the engine rejects, as in the recorded run.
// `progress(done, in flight)` may return false to stop. Errors: user (the file; a plan that does not fit the requests,
// with its line; plans that end before or continue after the requests), cancelled.
Result<PlannedReplay> replay_plans(EngineCore& core, std::span<const WorkloadRequest> load, int64_t vocab,
                                   const std::string& path, const std::function<bool(int64_t, int64_t)>& progress);

}  // namespace millrace
