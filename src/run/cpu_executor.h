// CpuExecutor: runs the model's forward pass on this machine's cores, and each request's sampler chain.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kv/kv_formats.h"
#include "millrace/model.h"
#include "models/eviction_observer.h"
#include "models/mass_observer.h"
#include "models/model_runner.h"
#include "run/adapter_registry.h"
#include "run/constraint_memory.h"
#include "run/document_rows.h"
#include "run/draft_runner.h"
#include "run/encoded_documents.h"
#include "run/executor.h"
#include "run/feature_runner.h"
#include "run/link_rows.h"
#include "run/self_runner.h"
#include "run/token_choice.h"

namespace millrace {

// Passes a layer on before its keys are read.
struct KeysReady final : ForwardObserver {
  std::function<void(int64_t layer)> wait;
  void before_attention(int64_t layer) override { wait(layer); }
};

class CpuExecutor final : public Executor {
 public:
  // Errors: user (an option), unsupported (KV format), resource (memory). The options are in range.
  static Result<std::unique_ptr<Executor>> create(std::shared_ptr<const LanguageModel> model,
                                                  const EngineOptions& options);

  const ExecutorLimits& limits() const override { return limits_; }
  KvPool& kv() override { return runner_->kv(); }
  Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) override;
  Result<std::unique_ptr<KvTier>> make_swap(const EngineOptions& options) override;
  Result<std::unique_ptr<PrefixStore>> make_store(const EngineOptions& options) override;
  Result<std::string> kv_identity() override;
  bool before_attention(std::function<void(int64_t)> ready) override;
  Result<void> check(const Request& request) const override;
  Result<CompiledConstraint> compile(const Constraint& constraint, const CompileOrder& order) const override;
  std::optional<Result<CompiledConstraint>> compiled(const Constraint& constraint) const override;
  const Facts& facts() const override { return facts_; }
  Result<void> check_encoded(const DocumentTokens& documents) const override;
  Result<void> put_links(const LinkRowsChoice& choice, Request& request) const override;
  bool hold_documents(LiveStream& stream, int64_t& budget) override;
  Result<void> check_parts(const ContextPlan& plan) const override {
    return rows_ ? rows_->kept().check(plan) : Result<void>();
  }
  bool places_parts() const override { return rows_ != nullptr; }
  bool hold_part(LiveStream& stream, const ContextPart& part, int64_t& budget) override {
    return rows_->hold(stream, part, budget);
  }
  int64_t put_part(LiveStream& stream, const ContextPart& part, int64_t count) override {
    return rows_->put(stream, part, count, *runner_);
  }
  void compact_encoded(const LiveStream& stream) override;
  void move_keys(std::span<const BlockId> blocks, int64_t slot, int64_t count, int64_t positions) override;
  void keys_changed(std::span<const BlockId> blocks, int64_t begin, int64_t end) override;
  void refresh(const LiveStream& stream) override;
  Result<void> begin(LiveStream& stream) const override;
  void observe_attention() override;
  void forward(std::span<const StepWork> work) override;
  Result<void> failure() const override;
  void choose_ahead(std::span<const StepWork> work, const Acceptance& acceptance) override;
  bool may_choose(LiveStream& stream, int64_t row) const override { return choice_->may_choose(stream, row); }
  Result<bool> choose(LiveStream& stream, int64_t row, TokenEvent& event) override;
  void likeliest(int64_t row, int64_t count, std::vector<TokenLogprob>& out) override;
  TokenId best_token(int64_t row) override;
  void best_tokens(int64_t row, std::span<TokenId> out) override;
  std::vector<TokenId> end_tokens() const override;
  void write(LiveStream& stream, TokenEvent& event) override;
  void flush(LiveStream& stream, TokenEvent& event) override;
  AdapterRegistry* adapters() const override { return adapters_.get(); }
  DraftModel* draft_model() override {
    if (self_) return self_.get();
    if (features_) return features_.get();
    return draft_.get();
  }
  const MemoryAccounts* accounts() const override;
  Result<void> check_blocks() const override { return rows_ ? rows_->kept().check_blocks() : Result<void>(); }
  const float* logits() const override { return runner_->logits(); }

 private:
  CpuExecutor() = default;
  Result<void> size_memory(const EngineOptions& options, std::shared_ptr<ThreadPool> threads);
  // Refuses what does not go together, before memory is taken.
  Result<void> state_facts(const EngineOptions& options, const KvFormats& formats);
  Result<std::shared_ptr<const LanguageModel>> load_draft_model(const EngineOptions& options, int threads,
                                                                KvLayout& layout) const;
  Result<void> load_documents(const EngineOptions& options, std::shared_ptr<ThreadPool> threads,
                              const ForwardLimits& limits, bool encodes);
  Result<void> load_features(const EngineOptions& options, ThreadPool& threads, KvLayout& layout);
  void add_rows(LiveStream& stream, int64_t begin, int64_t end, int64_t moved, int64_t sampled);
  void add_tree(const LiveStream& stream, int64_t count, int64_t moved);
  void forward_in_parts();
  void request_mass(std::span<const StepWork> work);
  void take_mass(std::span<const StepWork> work);
  Result<void> begin_adapters(LiveStream& stream) const;

  std::shared_ptr<const LanguageModel> model_;
  Facts facts_;
  mutable std::vector<MemoryHold> memory_;
  std::unique_ptr<ConstraintMemory> grammars_;  // null: the model has no tokenizer
  std::unique_ptr<AdapterRegistry> adapters_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<DraftRunner> draft_;           // over the runner's pool; null: the drafter has no model of its own
  std::unique_ptr<FeatureRunner> features_;      // over the runner; null: the drafter reads no hidden states
  std::unique_ptr<SelfRunner> self_;             // over the runner; null: the drafter does not run this model
  std::unique_ptr<EncodedDocuments> documents_;  // a hook of the runner; null: no encoder
  std::unique_ptr<DocumentRows> rows_;           // null: streams have rows, or no documents apart
  std::unique_ptr<const LinkRows> links_;        // null: links are tokens
  KeysReady keys_ready_;
  MassObserver mass_;
  std::optional<EvictionObserver> evictions_;
  std::optional<TokenChoice> choice_;
  std::vector<int64_t> draft_positions_;
  struct ReadRow {
    LiveStream* stream;
    int64_t position;
    int32_t row;          // of the step's outputs
    bool failed = false;  // set by the thread that reads the row

    PromptReader& reader() const { return *stream->sequence.request.reader; }
    void read(const float* values);
  };
  std::vector<ReadRow> reads_;          // of this step
  std::vector<int32_t> read_rows_;      // of logits that are computed together
  std::vector<int32_t> sampled_;        // rows, of a pass in parts; without those behind the last one needed
  std::vector<LoraRows::Run> adapted_;  // of a pass in parts: adapters of all its outputs
  ExecutorLimits limits_;
  bool observes_ = false;
};

}  // namespace millrace
