// FeatureRunner: heads or a layer that were trained to draft from the engine's model's hidden states
// (models/draft_heads/), as the second model of a drafter. The hidden states of all tokens are kept in the KV pool
// (run/feature_plane.h), behind the layers of the engine's model and those of the drafting layer:
//
//   pool   [ layers of the engine's model | drafting layer | features ]     of every block
//
// Engine thread only, except load().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model_runner.h"
#include "run/language_model.h"
#include "speculate/draft_model.h"
#include "speculate/drafter.h"

namespace millrace {

class FeatureRunner : public DraftModel {
 public:
  // Sizes of the engine's passes, for `streams` streams.
  struct Sizes {
    int64_t tokens = 0;
    int64_t context = 0;
    int64_t streams = 0;
    int64_t rows = 1;     // Drafter::model_rows()
    int64_t longest = 0;  // tokens of a draft
    int64_t vocab = 0;
  };

  // The weights, for streams of up to `context` tokens; charged to the memory accounts of `target`, which outlives
  // the runner. Errors: those of load() of MedusaHeads, EagleLayer and MtpLayer, after "drafter NAME: ".
  static Result<std::unique_ptr<FeatureRunner>> load(const FeatureChoice& choice, const std::string& path,
                                                     const LanguageModel& target, ThreadPool& pool, int64_t context);

  // The layers that the pool needs behind those of the engine's model.
  virtual std::vector<KvLayer> layers() const = 0;
  // Memory that start() allocates in addition to the KV pool.
  virtual int64_t memory(const Sizes& sizes, int threads, const KvLayout& layout) const = 0;
  // `target` outlives the runner; its pool has layers() from `first_layer` on. Errors: resource.
  virtual Result<void> start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) = 0;
  // Returns true if keep() must be called after each pass of `target`, in which all tokens were outputs: it keeps their
  // hidden states.
  virtual bool keeps() const { return true; }
  virtual void keep() {}
  // Keys and values of other weights are other keys and values.
  virtual std::string identity() const = 0;
  virtual int64_t weight_bytes() const = 0;  // packed
};

}  // namespace millrace
