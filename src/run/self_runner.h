// SelfRunner: the engine's model as its own draft model (speculate/draft_model.h), with some of its mixers and MLPs
// left out of the pass. It runs through the engine's own ModelRunner between two steps. The keys and values that it
// stores for drafted tokens are those of the chunk that verifies them, in the same slots, so the step overwrites them
// before anything reads them. If only the first layers draft, their keys and values are already those of the step,
// which continues behind these layers with the rows that the runner keeps. Engine thread only.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "models/model_runner.h"
#include "models/skipped_blocks.h"
#include "run/first_rows.h"
#include "sampling/row.h"
#include "speculate/draft_model.h"

namespace millrace {

// Adds the tokens of a run to the runner's batch as the executor adds a chunk of a stream that decodes; `outputs`: its
// last one as an output row.
void add_draft_run(ModelRunner& runner, const DraftRun& run, bool outputs);

class SelfRunner final : public DraftModel {
 public:
  // `runner` outlives it. Runs of at most `streams` streams. `first`: number of layers that draft, all later ones are
  // skipped; 0: `skipped` says which.
  SelfRunner(ModelRunner& runner, SkippedBlocks skipped, int64_t streams, int64_t first = 0);
  // Memory in addition to the runner's: the rows being drawn, one a thread. FirstRows takes its own.
  static int64_t memory(int64_t vocab, int64_t streams, int threads);

  void run(std::span<DraftRun> runs) override;

  const SkippedBlocks& skipped() const { return skipped_; }
  FirstRows* first_rows() { return first_ ? &*first_ : nullptr; }  // null: drafts run no first layers alone

 private:
  void run_first(const ThreadPool::Turn& turn);

  ModelRunner& runner_;
  SkippedBlocks skipped_;
  std::optional<FirstRows> first_;
  std::vector<std::pair<RequestId, int64_t>> running_;  // stream and index of each token of the pass
  ForwardHooks hooks_;                // hooks of its passes: adapters; observers of steps do not see them
  std::vector<SamplingRow> scratch_;  // [worker]
  std::vector<DraftRun*> drawing_;    // by row of logits
};

}  // namespace millrace
