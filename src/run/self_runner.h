// SelfRunner: the engine's model as its own draft model (speculate/draft_model.h), with some of its mixers and MLPs
// left out of the pass. It runs through the engine's own ModelRunner between two steps. The keys and values that it
// stores for drafted tokens are those of the chunk that verifies them, in the same slots, so the step overwrites them
// before anything reads them. Engine thread only.
#pragma once

#include <vector>

#include "models/model_runner.h"
#include "models/skipped_blocks.h"
#include "run/loaded_draft_model.h"
#include "sampling/row.h"

namespace millrace {

// Adds the tokens of a run to the runner's batch as the executor adds a chunk of a stream that decodes; `outputs`: its
// last one as an output row.
void add_draft_run(ModelRunner& runner, const DraftRun& run, bool outputs);

// Bytes of the rows being drawn, one a thread, of a model that runs through the engine's own ModelRunner.
int64_t drawn_rows_bytes(const LoadedDraftModel::Sizes& sizes, int threads);

class SelfRunner final : public LoadedDraftModel {
 public:
  explicit SelfRunner(SkippedBlocks skipped) : skipped_(std::move(skipped)) {}

  int64_t memory(const Sizes& sizes, int threads, const KvLayout& layout) const override;
  Result<void> start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) override;
  void run(std::span<DraftRun> runs) override;

 private:
  SkippedBlocks skipped_;
  ModelRunner* runner_ = nullptr;
  ForwardHooks hooks_;                // hooks of its passes: adapters; observers of steps do not see them
  std::vector<SamplingRow> scratch_;  // [worker]
  std::vector<DraftRun*> drawing_;    // by row of logits
};

}  // namespace millrace
