// TwoBatches: a pass as two mini-batches, each with its own context and thread (He and Zhai, 2024, "FastDecode"). While
// attention workers attend for one of them, the matrices of the other run:
//
//   engine    | A: q, k, v | B: q, k, v | A: MLP, next q, k, v | B: MLP ...
//   workers                | A: attends | B: attends           | A: attends
//
// Streams are independent and have the same bits in any batch, so the logits are those of one pass. Not thread-safe.
#pragma once

#include <array>

#include "attention/workers/workers.h"
#include "flow/batch.h"
#include "models/forward_context.h"

namespace millrace {

class Model;

// The sizes of a model's workers.
AttentionWorkers::Sizes worker_sizes(const ArchSpec& spec, Isa isa, const KvLayout& layout, int64_t blocks,
                                     const KvPoolOptions& places, const ForwardLimits& limits);

// Bytes that passes with workers need in addition: rows on their way, and the second mini-batch. Without the workers'
// keys and values, which are those of the engine's KV pool.
int64_t worker_memory(const ArchSpec& spec, const ForwardLimits& limits, const KvLayout& layout, int threads);

class TwoBatches {
 public:
  // `second`: the context of the second mini-batch, with the limits of the first one. `workers` outlive the object.
  TwoBatches(ForwardContext second, AttentionWorkers& workers);

  // Cuts the batch between two streams, with about as many tokens on both sides. Returns false if the pass must be one
  // batch: it has one stream, or `first` has hooks, or its tokens do not see all of their streams.
  bool split(const Batch& batch, const ForwardContext& first);
  // Runs both halves. The logits of all output rows are then in `first`.
  void forward(const Model& model, ForwardContext& first);

 private:
  void run(const Model& model, int64_t lane, ForwardContext& context);

  ForwardContext second_;
  AttentionWorkers& workers_;
  std::array<Batch, 2> halves_;
};

}  // namespace millrace
