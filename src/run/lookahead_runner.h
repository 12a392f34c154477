// LookaheadRunner: the engine's model as its own draft model, with look-ahead tokens behind a stream's own
// (models/draft_heads/lookahead_tokens.h). A run has the stream's own tokens and one pick more than look-ahead tokens:
// the first pick is behind the last own token, each other one behind a look-ahead token (DraftRun::picks).
//
//   run   ... cat sat | [1] [2]
//   picks        on     the  mat
//
// It runs through the engine's own ModelRunner between two steps. The look-ahead tokens take the slots of the drafted
// ones, whose keys and values the step's pass stores there before anything reads them. Engine thread only.
#pragma once

#include <vector>

#include "models/draft_heads/lookahead_tokens.h"
#include "run/loaded_draft_model.h"
#include "sampling/row.h"

namespace millrace {

class LookaheadRunner final : public LoadedDraftModel {
 public:
  explicit LookaheadRunner(LookaheadTokens tokens) : tokens_(std::move(tokens)) {}

  int64_t memory(const Sizes& sizes, int threads, const KvLayout& layout) const override;
  Result<void> start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) override;
  int64_t weight_bytes() const override { return tokens_.bytes(); }
  void run(std::span<DraftRun> runs) override;

 private:
  struct Draw {
    DraftRun* run = nullptr;
    int64_t row = 0;  // row of logits of its first pick
  };

  LookaheadTokens tokens_;
  ModelRunner* target_ = nullptr;
  int64_t vocab_ = 0;
  ForwardHooks hooks_;                // hooks of its passes: adapters of requests; observers of steps do not see them
  std::vector<SamplingRow> scratch_;  // [worker]
  std::vector<Draw> drawing_;
};

}  // namespace millrace
