// CpuSetup: sizes a CpuExecutor from an engine's plan and takes its memory. Each function sizes one feature; run()
// calls them in the order in which they depend on each other:
//
//   layout of the KV cache -> places of streams -> limits of a pass -> documents -> memory plan -> runner -> limits
#pragma once

#include <memory>

#include "run/cpu_executor.h"
#include "run/drafter_setup.h"
#include "run/memory_plan.h"

namespace millrace {

class CpuSetup {
 public:
  // `executor` has its model and its adapters. Both outlive the object.
  CpuSetup(CpuExecutor& executor, const EnginePlan& plan);

  // Errors: user (an option), unsupported (KV format, combinations), resource (memory).
  Result<void> run();

 private:
  Result<void> plan_context();
  Result<void> plan_layout();
  Result<void> state_facts();
  Result<void> plan_places();
  Result<void> plan_passes();
  Result<int64_t> plan_memory();
  Result<void> create_runner(int64_t blocks);
  void set_limits();

  CpuExecutor& executor_;
  const EnginePlan& plan_;
  const EngineOptions& options_;  // of the plan
  const Model& model_;
  const Tokenizer* tokenizer_;  // null: the model has none
  std::shared_ptr<ThreadPool> threads_;
  DrafterSetup drafter_;
  KvLayout layout_;
  KvPoolOptions places_;
  ForwardLimits forward_;
};

}  // namespace millrace
