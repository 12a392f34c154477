// SkipMeasure: predicts the speedup of self-drafting, in which a model drafts for itself without some of its blocks.
// The result is equal on every machine, because acceptance is counted on a text, and the cost of a pass is the bytes of
// the weights that it reads.
//
// The text is divided into windows; the first tokens of a window are context only. After every k-th token, a chunk of k
// tokens runs without the blocks, on keys and values of the whole model, like a draft whose tokens are right so far.
// The chunk counts as a draft if the whole model predicts its first token, and ends at the first token that the whole
// model does not predict. For each position i, the share of drafts that predict the next token correctly is measured
// among the drafts that reach position i. The product of these shares up to a position is the probability that a draft
// reaches it.
//
//   gain = (1 + kept tokens of a draft) / (1 + k * bytes of the kept blocks / bytes of all), for the best k
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "evaluate/skip_search.h"
#include "models/model_runner.h"
#include "models/skipped_blocks.h"
#include "run/language_model.h"

namespace millrace {

struct SkipMeasureOptions {
  int threads = 0;       // 0: all cores
  int64_t longest = 8;   // maximum tokens of a draft
  int64_t window = 128;  // tokens of a window; an incomplete window at the text's end is dropped
};

struct SkipGain {
  double gain = 0;  // tokens per second, as a multiple of plain decoding
  int64_t k = 1;    // tokens of a draft for which `gain` is reached
  double kept = 0;  // drafted tokens that are kept, on average
  double cost = 1;  // cost of a drafting pass; a pass of the whole model costs 1
};

class SkipMeasure {
 public:
  // Errors: user (the text is too short, or the model predicts none of its tokens), unsupported (recurrent layers),
  // resource.
  static Result<std::unique_ptr<SkipMeasure>> create(std::shared_ptr<const LanguageModel> model,
                                                     std::vector<TokenId> tokens, const SkipMeasureOptions& options);

  int64_t layers() const { return static_cast<int64_t>(attention_bytes_.size()); }
  int64_t drafts() const { return drafts_; }
  // Errors: internal (weights cannot be read).
  Result<SkipGain> measure(const SkippedBlocks& skipped);

 private:
  SkipMeasure() = default;
  std::span<const TokenId> window(int64_t index) const;
  void begin(int64_t window, int64_t first);
  void run_whole();
  struct Place {
    int64_t reached = 0, right = 0;  // drafts that reach this position, and drafts that predict its next token
  };
  bool is_own(int64_t window, int64_t at) const;
  void run_chunks(int64_t chunk, std::vector<Place>& places);
  double cost_of(const SkippedBlocks& skipped) const;
  TokenId likeliest(int64_t row);

  std::shared_ptr<const LanguageModel> model_;
  SkipMeasureOptions options_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::vector<BlockId>> blocks_;  // by window
  std::vector<TokenId> tokens_;               // tokens of all windows
  std::vector<TokenId> whole_;                // the whole model's prediction after each token
  int64_t windows_ = 0, chunks_ = 0, drafts_ = 0;
  std::vector<double> attention_bytes_, mlp_bytes_;  // by layer
  double other_bytes_ = 0;
};

// Convert between skipped blocks and the vector of the search, which has the attention of every layer, then the MLPs.
SkippedBlocks skipped_blocks(const SkipVector& vector);
SkipVector skip_vector(const SkippedBlocks& skipped);

}  // namespace millrace
