// SelfRunner: the engine's model as its own draft model (speculate/draft_model.h), with some of its mixers and MLPs
// left out of the pass. It runs through the engine's own ModelRunner between two steps. The keys and values that it
// stores for drafted tokens are those of the chunk that verifies them, in the same slots, so the step overwrites them
// before anything reads them. If only the first layers draft, their keys and values are already those of the step,
// which continues behind these layers with the rows that the runner keeps. Recurrent layers draft on a copy of the
// stream's state, and the step then runs every layer. Engine thread only.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "models/model_runner.h"
#include "models/skipped_blocks.h"
#include "run/drafting/first_rows.h"
#include "run/drafting/loaded_draft_model.h"
#include "sampling/row.h"

namespace millrace {

// Adds the tokens of a run to the runner's batch as the executor adds a chunk of a stream that decodes; `outputs`: its
// last one as an output row. A recurrent state is copied into the slot of the chunk's last mark, which the step
// overwrites, and moves on there.
void add_draft_run(ModelRunner& runner, const DraftRun& run, bool outputs);

// Bytes of the rows being drawn, one a thread, of a model that runs through the engine's own ModelRunner.
int64_t drawn_rows_bytes(const LoadedDraftModel::Sizes& sizes, int threads);

class SelfRunner final : public LoadedDraftModel {
 public:
  // `first`: number of layers that draft, of a model of this width, whose later layers are all skipped; 0: `skipped`
  // says which blocks are left out.
  explicit SelfRunner(SkippedBlocks skipped, int64_t first = 0, int64_t width = 0)
      : skipped_(std::move(skipped)), layers_(first), width_(width) {}

  int64_t memory(const Sizes& sizes, int threads, const KvLayout& layout) const override;
  Result<void> start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) override;
  void run(std::span<DraftRun> runs) override;

  FirstRows* first_rows() override { return first_ ? &*first_ : nullptr; }

 private:
  void run_first(const ThreadPool::Turn& turn);

  SkippedBlocks skipped_;
  int64_t layers_, width_;
  ModelRunner* runner_ = nullptr;
  std::optional<FirstRows> first_;
  std::vector<std::pair<RequestId, int64_t>> running_;  // stream and index of each token of the pass
  ForwardHooks hooks_;                // hooks of its passes: adapters; observers of steps do not see them
  std::vector<SamplingRow> scratch_;  // [worker]
  std::vector<DraftRun*> drawing_;    // by row of logits
};

}  // namespace millrace
