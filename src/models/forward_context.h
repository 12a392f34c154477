// ForwardContext: what one forward pass works with. Sized once, for the largest step; a step allocates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention/mass.h"
#include "base/thread_pool.h"
#include "flow/batch.h"
#include "kernels/kernel_table.h"
#include "kernels/linear.h"
#include "kv/pool.h"
#include "models/arch_spec.h"
#include "models/lora/rows.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

struct ForwardLimits {
  int64_t tokens = 512;    // in one batch
  int64_t outputs = 64;    // rows of logits in one batch
  int64_t context = 2048;  // slots of one stream
};

struct ForwardBytes {
  int64_t activations = 0;  // everything but
  int64_t logits = 0;
};

class ForwardContext {
 public:
  // What create() will allocate.
  static ForwardBytes plan(const ArchSpec& spec, const ForwardLimits& limits, int threads, int64_t block_tokens);

  // Errors: resource.
  static Result<ForwardContext> create(const ArchSpec& spec, const KernelTable& kernels, ThreadPool& pool, KvPool& kv,
                                       const ForwardLimits& limits);

  const KernelTable& kernels() const { return *kernels_; }
  ThreadPool& pool() const { return *pool_; }
  KvPool& kv() const { return *kv_; }
  const ForwardLimits& limits() const { return limits_; }
  int64_t bytes() const;

  float* logits() { return logits_.as<float>(); }
  const float* logits() const { return logits_.as<float>(); }

  // Called before each layer's keys are read, when set: keys and values of that layer may still be on their way.
  std::function<void(int64_t layer)> before_attention;

  // Ends after the last norm: `normed` holds the final hidden states of the output rows, and no logits are computed.
  bool hidden_only = false;

  // Scratch of one step, shapes in [ ]; T = limits.tokens.
  AlignedBuffer residual;                      // [T, width]
  AlignedBuffer normed;                        // [T, width]
  AlignedBuffer block_out;                     // [T, width]
  AlignedBuffer q, k, v;                       // [T, heads * dim], [T, kv_heads * dim]
  AlignedBuffer attended;                      // [T, heads * dim]
  AlignedBuffer gate, up;                      // [T * used experts, hidden]
  AlignedBuffer encoded;                       // activation rows of the widest input
  AlignedBuffer encoded_hidden;                // activation rows of the MLP's inner width
  AlignedBuffer rope;                          // [ropes][T][cos, sin][rotated / 2]
  AlignedBuffer partials;                      // attention: see attention/full.cc
  AlignedBuffer router;                        // [T, experts]
  AlignedBuffer expert_in;                     // gathered activation rows
  AlignedBuffer expert_out;                    // [T * used, width]
  std::vector<int32_t> chosen;                 // [T, used] experts
  std::vector<float> chosen_weight;            // [T, used]
  std::vector<int32_t> expert_rows;            // rows grouped by expert
  std::vector<int64_t> expert_begin;           // [experts + 1]
  std::vector<LinearPart> expert_parts;        // [2 * experts]
  AttentionMass mass;                          // what is to be observed beside the step
  LoraRows lora;                               // which rows use adapters
  Batch outputs;                               // the last layer's, when logits of some tokens only are wanted
  std::vector<const uint8_t*> block_pointers;  // per worker: 2 * blocks of one stream

 private:
  const KernelTable* kernels_ = nullptr;
  ThreadPool* pool_ = nullptr;
  KvPool* kv_ = nullptr;
  ForwardLimits limits_;
  AlignedBuffer logits_;  // [limits.outputs, vocab]
};

}  // namespace millrace
