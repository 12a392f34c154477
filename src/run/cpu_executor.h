// CpuExecutor: runs the model's forward pass on this machine's cores, and each request's sampler chain.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "flow/batch.h"
#include "millrace/model.h"
#include "models/forward_context.h"
#include "run/adapter_registry.h"
#include "run/constraint_memory.h"
#include "run/executor.h"

namespace millrace {

class CpuExecutor final : public Executor {
 public:
  // Errors: user (an option), unsupported (KV format), resource (memory). The options are in range.
  static Result<std::unique_ptr<Executor>> create(std::shared_ptr<const LanguageModel> model,
                                                  const EngineOptions& options);

  const ExecutorLimits& limits() const override { return limits_; }
  KvPool& kv() override { return *kv_; }
  Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) override;
  Result<std::unique_ptr<PrefixStore>> make_store(const EngineOptions& options) override;
  bool before_attention(std::function<void(int64_t)> ready) override;
  Result<void> check(const Request& request) const override;
  Result<CompiledConstraint> compile(const Constraint& constraint, const CompileOrder& order) const override;
  std::optional<Result<CompiledConstraint>> compiled(const Constraint& constraint) const override;
  Result<void> check_evictor(const EvictionRule& rule) const override;
  Result<void> begin(LiveStream& stream) const override;
  void observe_attention() override { observes_ = true; }
  void forward(std::span<const StepWork> work) override;
  Result<bool> choose(LiveStream& stream, int64_t row, TokenEvent& event) override;
  void likeliest(int64_t row, int64_t count, std::vector<TokenLogprob>& out) override;
  std::vector<TokenId> end_tokens() const override;
  void write(LiveStream& stream, TokenEvent& event) override;
  void flush(LiveStream& stream, TokenEvent& event) override;
  AdapterRegistry* adapters() const override { return adapters_.get(); }
  const MemoryAccounts* accounts() const override;
  const float* logits() const override { return context_->logits.as<float>(); }

 private:
  CpuExecutor() = default;
  Result<void> size_memory(const EngineOptions& options);
  void request_mass(std::span<const StepWork> work);
  void take_mass(std::span<const StepWork> work);
  void request_token_mass(std::span<const StepWork> work);
  Result<void> begin_adapters(LiveStream& stream) const;

  std::shared_ptr<const LanguageModel> model_;
  mutable std::vector<MemoryHold> memory_;
  std::unique_ptr<ConstraintMemory> grammars_;  // null: the model has no tokenizer
  std::unique_ptr<AdapterRegistry> adapters_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<ForwardContext> context_;
  ExecutorLimits limits_;
  bool observes_ = false;
  Batch batch_;
  SamplingRow row_;
  std::vector<float> raw_logits_;
};

}  // namespace millrace
