// StepTimer: measures the time of steps with any combination of chunks on the engine's executor: the forward pass,
// then sampling the next token of every sampled chunk. The contents of the KV cache are arbitrary.
#pragma once

#include <memory>
#include <vector>

#include "engine/live_stream.h"
#include "millrace/model.h"
#include "millrace/options.h"
#include "run/executors/executor.h"
#include "schedule/cost_fit.h"

namespace millrace {

// Chunks of different streams; `request` counts from 0.
using StepDesign = std::vector<PlannedChunk>;

StepShape shape_of(const StepDesign& design);

struct StepTimerLimits {
  int64_t kv_tokens = 0;      // total of all streams in a step
  int64_t stream_tokens = 0;  // per stream
};

class StepTimer {
 public:
  // Errors: user, unsupported, resource, as for Engine::create.
  static Result<std::unique_ptr<StepTimer>> create(std::shared_ptr<const LanguageModel> model,
                                                   const EngineOptions& options, const StepTimerLimits& limits);
  ~StepTimer();

  // Seconds. Errors: internal, from the sampler.
  Result<double> run(const StepDesign& design);
  // Speed of swapping keys and values to host memory and back.
  Result<SwapSpeed> swap_speed(int64_t tokens);
  // Speed of loads of up to `tokens` from a prefix store, using a temporary file in `folder`. Errors: user, resource
  // (the file).
  Result<DiskSpeed> disk_speed(const std::string& folder, int64_t tokens);

 private:
  StepTimer() = default;
  Result<void> fill();

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<LiveStream>> streams_;
  std::vector<BlockId> blocks_;
  StepInput input_;
  StepOutput output_;
};

}  // namespace millrace
