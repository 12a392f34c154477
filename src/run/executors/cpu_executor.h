// CpuExecutor: runs the model's forward pass on this machine's cores, and each request's sampler chain.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "millrace/model.h"
#include "models/model_runner.h"
#include "run/executors/cpu_chooser.h"
#include "run/executors/cpu_documents.h"
#include "run/executors/cpu_kv.h"
#include "run/executors/executor.h"
#include "run/executors/step_pass.h"
#include "run/executors/streamed_keys.h"

namespace millrace {

class CpuExecutor final : public Executor {
 public:
  // Errors: user (an option), unsupported (KV format), resource (memory). The options are in range.
  static Result<std::unique_ptr<Executor>> create(std::shared_ptr<const LanguageModel> model, const EnginePlan& plan);
  // Variant with a plan of its own, for callers that run steps without an engine's loop.
  static Result<std::unique_ptr<Executor>> create(std::shared_ptr<const LanguageModel> model,
                                                  const EngineOptions& options);

  const ExecutorLimits& limits() const override { return limits_; }
  Result<void> check(const Request& request) const override;
  const Facts& facts() const override { return facts_; }
  void observe_attention() override { pass_->observe_attention(); }
  void forward(const StepInput& input, StepOutput& output) override;
  Result<void> failure() const override;
  bool take_loss() override;
  const float* logits() const override { return runner_->logits(); }

 private:
  friend class CpuSetup;  // builds it
  CpuExecutor() = default;
  Result<void> packing_failure() const;  // any thread
  // After the runner, the drafter and the documents exist: the remaining parts, for passes with these limits.
  void start(const ForwardLimits& limits, int64_t drafts, int64_t streams);

  std::shared_ptr<const LanguageModel> model_;
  Facts facts_;
  std::vector<MemoryHold> memory_;
  std::unique_ptr<ConstraintMemory> grammars_;  // null: the model has no tokenizer
  std::unique_ptr<AdapterRegistry> adapters_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<StreamedKeys> streamed_;   // over the runner's pool; null: all keys are in memory
  std::unique_ptr<LoadedDraftModel> draft_;  // over the runner; null: the drafter has no model
  std::unique_ptr<CpuDocuments> documents_;  // over the runner
  std::optional<CpuKv> kv_;
  std::optional<CpuChooser> chooser_;
  std::optional<StepPass> pass_;
  Result<void> read_;  // result of reading the last step's weights
  ExecutorLimits limits_;
};

}  // namespace millrace
