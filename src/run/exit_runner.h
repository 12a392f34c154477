// ExitRunner: the first layers of the engine's model and an adapter behind them (models/draft_heads/exit_adapter.h) as
// its draft model. It runs through the engine's own ModelRunner between two steps, and stores drafted tokens' keys and
// values in the slots of the chunk that verifies them, as SelfRunner does.
//
// The adapter's keys and values are a further layer of the pool. An observer stores them in every pass of the model, so
// that a slot has both or neither. Engine thread only.
#pragma once

#include <optional>
#include <vector>

#include "models/draft_heads/exit_adapter.h"
#include "run/loaded_draft_model.h"
#include "sampling/row.h"

namespace millrace {

class ExitRunner final : public LoadedDraftModel {
 public:
  explicit ExitRunner(std::unique_ptr<ExitAdapter> adapter) : adapter_(std::move(adapter)) {}
  ~ExitRunner() override;

  std::vector<KvLayer> layers() const override;
  int64_t memory(const Sizes& sizes, int threads, const KvLayout& layout) const override;
  Result<void> start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) override;
  Result<std::string> identity() override { return adapter_->identity(); }
  int64_t weight_bytes() const override { return adapter_->bytes(); }
  void run(std::span<DraftRun> runs) override;

 private:
  struct Stores final : ForwardObserver {
    explicit Stores(ExitRunner& owner) : runner(owner) {}
    void residual(int64_t layer, const float* rows, int64_t tokens, int64_t width) override;
    ExitRunner& runner;
  };

  static ForwardLimits limits(const Sizes& sizes);

  std::unique_ptr<ExitAdapter> adapter_;
  ModelRunner* target_ = nullptr;
  std::optional<ForwardContext> context_;
  Stores stores_{*this};
  ForwardHooks hooks_;                // hooks of its passes: adapters of requests; observers of steps do not see them
  std::vector<SamplingRow> scratch_;  // [worker]
  std::vector<DraftRun*> drawing_;    // by row of logits
  std::vector<int32_t> rows_;         // ... tokens of the batch
};

}  // namespace millrace
