// DrafterSetup: builds what an engine's drafter runs besides the engine's own passes: a second model (DraftRunner),
// heads that read hidden states (FeatureRunner), or the engine's model without some of its blocks (SelfRunner).
//
//   choose()   reads the options         load()    loads weights, adds their layers to the KV layout
//   memory()   counts the working memory start()   creates the runners over the engine's runner
#pragma once

#include <memory>
#include <optional>

#include "models/model_runner.h"
#include "models/skipped_blocks.h"
#include "run/draft_runner.h"
#include "run/feature_runner.h"
#include "run/self_runner.h"

namespace millrace {

// At most one of them is not null.
struct EngineDrafters {
  std::unique_ptr<DraftRunner> draft;
  std::unique_ptr<FeatureRunner> features;
  std::unique_ptr<SelfRunner> self;
};

class DrafterSetup {
 public:
  // All outlive the object.
  DrafterSetup(const LanguageModel& model, const EngineOptions& options, std::shared_ptr<ThreadPool> threads)
      : model_(model), options_(options), threads_(std::move(threads)) {}

  // Errors: user, unsupported (the drafter does not go with the model).
  Result<void> choose();
  int64_t longest() const { return longest_; }  // tokens of a draft; 0: no drafter
  // Adds the layers of the drafter's weights to `layout`, behind those of the engine's model, for streams of up to
  // `context` tokens. Errors: those of DraftRunner::load() and FeatureRunner::load(), unsupported.
  Result<void> load(KvLayout& layout, int64_t context);
  // The draft model, after load(); null: the drafter has none.
  const ArchSpec* draft_spec() const { return draft_ ? &draft_->parts().model->spec() : nullptr; }
  // Bytes that start() takes besides the KV pool, for passes with these limits. Errors: user (the options).
  Result<int64_t> memory(const ForwardLimits& limits, const KvLayout& layout);
  // After memory(). `runner` outlives the result. Errors: resource.
  Result<EngineDrafters> start(ModelRunner& runner);

 private:
  Result<void> load_draft_model(KvLayout& layout, int64_t context);
  Result<void> load_features(KvLayout& layout, int64_t context);

  const LanguageModel& model_;
  const EngineOptions& options_;
  std::shared_ptr<ThreadPool> threads_;
  int64_t longest_ = 0, own_layers_ = 0;
  std::optional<SkippedBlocks> skipped_;
  int64_t first_ = 0;                           // SkipChoice::first
  std::shared_ptr<const LanguageModel> draft_;  // null: the drafter has no model of its own
  std::unique_ptr<FeatureRunner> features_;     // null: it reads no hidden states
  DraftRunner::Sizes draft_sizes_;
  FeatureRunner::Sizes feature_sizes_;
};

}  // namespace millrace
