// LoadedDraftModel: the model of an engine's drafter: a second model (DraftRunner), heads or a layer that were trained
// on the engine's model's hidden states, or a part of the engine's model. Drafters name a loader of one
// (draft_models/loader.h). Its layers are the last ones of the engine's KV pool: one block table, one prefix index and
// one tier serve both models.
//
//   pool   [ layers of the engine's model | layers() ]     of every block
//
// A loader creates it, then the engine asks for layers() and memory(), and calls start() once its own runner exists.
// Engine thread only, except loading.
#pragma once

#include <string>
#include <vector>

#include "models/model_runner.h"
#include "speculate/draft_model.h"

namespace millrace {

class LoadedDraftModel : public DraftModel {
 public:
  // Sizes of the engine's passes, for `streams` streams.
  struct Sizes {
    int64_t tokens = 0;
    int64_t context = 0;
    int64_t streams = 0;
    int64_t rows = 1;     // ModelPart::rows
    int64_t longest = 0;  // tokens of a draft
    int64_t vocab = 0;
    // Drafted tokens in one step whose odds are kept (ExecutorStream::odds), for acceptance rules that need them: then
    // they are drawn with random numbers of their own. 0: none.
    int64_t odds = 0;
  };

  // The layers that the pool needs behind those of the engine's model.
  virtual std::vector<KvLayer> layers() const { return {}; }
  // Bytes that start() allocates in addition to the KV pool.
  virtual int64_t memory(const Sizes& sizes, int threads, const KvLayout& layout) const = 0;
  // `target` outlives the object; its pool has layers() from `first_layer` on. Errors: resource.
  virtual Result<void> start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) = 0;
  // Returns true if keep() must be called after each pass of `target`, in which all tokens were outputs: it keeps their
  // hidden states.
  virtual bool keeps() const { return false; }
  virtual void keep() {}
  // Keys and values of other weights are other keys and values; "": only the engine's model has some. Between passes.
  // Errors: resource.
  virtual Result<std::string> identity() { return std::string(); }
  virtual int64_t weight_bytes() const { return 0; }   // packed, besides the engine's model
  virtual int64_t scratch_bytes() const { return 0; }  // activations of its own passes
};

}  // namespace millrace
