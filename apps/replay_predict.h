// Predicts a replay by simulation: the same load and engine options, with step times from a cost model (`millrace bench
// --calibrate` creates one for a machine and model).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "replay/replay_run.h"

namespace millrace {

// `options`: the engine's actual options, with context and KV tokens set. Errors: user (the cost model).
Result<std::vector<RequestRecord>> predict_replay(const std::string& cost, std::span<const WorkloadRequest> load,
                                                  const EngineOptions& options, const ReplayOptions& replay);

}  // namespace millrace
