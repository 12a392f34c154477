// EvictionGates: lets the gates of a model's layers (models/token_gates.h) choose which tokens the streams of a
// ModelRunner's next pass store and see, for streams whose evictor uses gates. Gates decide in the pass, token by
// token, so the result does not depend on chunks, drafts or the remaining batch. It also tells layers which heads an
// evictor has pruned. Part of an EvictionObserver; not thread-safe.
#pragma once

#include <vector>

#include "kv/token_eviction.h"
#include "models/model_runner.h"

namespace millrace {

class EvictionGates final : public KeyGate {
 public:
  explicit EvictionGates(ModelRunner& runner);
  ~EvictionGates() override { runner_.hooks().set_gate(nullptr); }
  EvictionGates(const EvictionGates&) = delete;
  EvictionGates& operator=(const EvictionGates&) = delete;

  void start();
  // For the stream whose tokens were added to the runner last.
  void add(TokenEviction& eviction);
  void hide(const AttentionInput& in, const float* x, KeyLifetimes& lifetimes) override;

 private:
  struct Gated {
    size_t span;  // index in the batch's spans
    TokenEviction* eviction;
  };
  struct Chunk;

  void judge_pairs(const Chunk& chunk);
  void select(const Chunk& chunk, int64_t window);

  ModelRunner& runner_;
  std::vector<Gated> gated_;
  std::vector<float> queries_;  // [tokens, dims], of the layer
};

// Bytes of the gates' scratch, for passes of `tokens` tokens.
int64_t gate_scratch_bytes(const GateSizes& gates, int64_t tokens);

}  // namespace millrace
