// SelfRunner: the engine's model as its own draft model (speculate/draft_model.h), with some of its mixers and MLPs
// left out of the pass. It runs through the engine's own ModelRunner between two steps. The keys and values that it
// stores for drafted tokens are those of the chunk that verifies them, in the same slots, so the step overwrites them
// before anything reads them. Engine thread only.
#pragma once

#include <vector>

#include "models/model_runner.h"
#include "models/skipped_blocks.h"
#include "sampling/row.h"
#include "speculate/draft_model.h"

namespace millrace {

// Adds the tokens of a run to the runner's batch as the executor adds a chunk of a stream that decodes; `outputs`: its
// last one as an output row.
void add_draft_run(ModelRunner& runner, const DraftRun& run, bool outputs);

class SelfRunner final : public DraftModel {
 public:
  // `runner` outlives it. Runs of at most `streams` streams.
  SelfRunner(ModelRunner& runner, SkippedBlocks skipped, int64_t streams);
  // Memory in addition to the runner's: the rows being drawn, one a thread.
  static int64_t memory(int64_t vocab, int64_t streams, int threads);

  void run(std::span<DraftRun> runs) override;

  const SkippedBlocks& skipped() const { return skipped_; }

 private:
  ModelRunner& runner_;
  SkippedBlocks skipped_;
  ForwardHooks hooks_;                // hooks of its passes: adapters; observers of steps do not see them
  std::vector<SamplingRow> scratch_;  // [worker]
  std::vector<DraftRun*> drawing_;    // by row of logits
};

}  // namespace millrace
