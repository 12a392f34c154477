// What the simulator says of a replay before or after it ran: the same load, the same engine options, steps that take
// what a cost model says (`millrace bench --calibrate` makes one of this machine and model).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "replay_run.h"

namespace millrace {

// `options` as the engine runs with them: context and KV tokens must be numbers. Errors: user (the cost model).
Result<std::vector<RequestRecord>> predict_replay(const std::string& cost, std::span<const WorkloadRequest> load,
                                                  const EngineOptions& options, const ReplayOptions& replay);

}  // namespace millrace
