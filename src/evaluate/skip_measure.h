// SkipMeasure: predicts from a text what a model gains by drafting for itself without some of its blocks. The result is
// the same on every machine: acceptance is counted, and a pass costs the bytes of the weights that it reads.
//
// The text is divided into windows, whose first tokens are context only. After every k-th token a chunk of k tokens
// runs without the blocks, on keys and values of the whole model, as a draft does while it is right. If the whole model
// would have written the chunk's first token, the chunk counts as a draft, up to the first token that the whole model
// would not have written. For each place i, among the drafts that reach their i-th token, a share is right about the
// next one. The product of the shares is the share of drafts that reach a place.
//
//   gain = (1 + kept tokens of a draft) / (1 + k * bytes of what is left / bytes of all), of the k with the most
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
  int64_t longest = 8;   // tokens of the longest draft
  int64_t window = 128;  // tokens; the last part of the text that fills none is dropped
};

struct SkipGain {
  double gain = 0;  // tokens a second, compared with plain decoding
  int64_t k = 1;    // tokens of a draft with which it is reached
  double kept = 0;  // drafted tokens that are kept, on average
  double cost = 1;  // cost of a drafting pass; a pass of the whole model costs 1
};

class SkipMeasure {
 public:
  // Errors: user (the text is too short, or the model would have written none of it), unsupported (recurrent layers),
  // resource.
  static Result<std::unique_ptr<SkipMeasure>> create(std::shared_ptr<const LanguageModel> model,
                                                     std::vector<TokenId> tokens, const SkipMeasureOptions& options);

  int64_t layers() const { return static_cast<int64_t>(attention_bytes_.size()); }
  int64_t drafts() const { return drafts_; }
  SkipGain measure(const SkippedBlocks& skipped);

 private:
  SkipMeasure() = default;
  std::span<const TokenId> window(int64_t index) const;
  void begin(int64_t window, int64_t first);
  void run_whole();
  struct Place {
    int64_t reached = 0, right = 0;  // drafts, at one of their tokens
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
  std::vector<TokenId> whole_;                // the token that the whole model predicts after each of them
  int64_t windows_ = 0, chunks_ = 0, drafts_ = 0;
  std::vector<double> attention_bytes_, mlp_bytes_;  // by layer
  double other_bytes_ = 0;
};

// Blocks in the search's vector, which has the attention of every layer, then the MLPs.
SkippedBlocks skipped_blocks(const SkipVector& vector);
SkipVector skip_vector(const SkippedBlocks& skipped);

}  // namespace millrace
