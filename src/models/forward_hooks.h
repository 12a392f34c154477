// Interfaces that look into a forward pass (ForwardObserver), change its products (LinearWrapper) or add blocks to its
// layers (LayerBlock). All are called on the thread that runs the pass, between its parallel parts; a pass without
// hooks pays one check per product and layer.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "attention/full.h"
#include "attention/key_lifetimes.h"
#include "base/thread_pool.h"
#include "flow/batch.h"
#include "kernels/kernel_table.h"
#include "kv/pool.h"
#include "models/linear_id.h"
#include "tensor/weight.h"

namespace millrace {

// The input of one matrix: x [tokens, weight.cols], before it is rounded. The rows of an expert are the tokens that
// chose it. Valid during the call.
struct LinearInput {
  LinearId id;
  const Weight& weight;
  const float* x = nullptr;
  int64_t tokens = 0;
};

// One layer's queries, scaled and rotated: q [batch.size(), layer.q_width()]; the layer's heads are the first of it.
// The layer's new keys, rotated, as they were before the KV cache encoded them: k [batch.size(), k_stride]; the layer's
// KV heads are the first of it. In latent attention a key is the row that all heads share. If KV heads have their own
// tables (KvGroup::head), each head is a layer here. The batch's keys and values are stored.
struct AttentionInput {
  const AttentionLayer& layer;
  const Batch& batch;
  const KernelTable& kernels;
  KvPool& kv;
  const float* q = nullptr;
  const float* k = nullptr;
  int64_t k_stride = 0;               // floats from one token's keys to the next token's
  const CodecTiles* tiles = nullptr;  // for a layer with a codec: the tiles have its keys; null: rows
};

class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;

  // Before a layer's keys are read: those of earlier tokens may still be loading.
  virtual void before_attention(int64_t /*layer*/) {}
  // After before_attention() of all observers.
  virtual void queries(const AttentionInput& /*input*/) {}
  // After the layer's attention: its outputs [batch.size(), heads * value_dim], before the matrix that joins the heads.
  // In the last layer of the rows that continue.
  virtual void attended(const AttentionLayer& /*layer*/, const Batch& /*batch*/, const float* /*rows*/) {}
  // true: input() receives the rows of this matrix in each pass.
  virtual bool taps(const LinearId& /*id*/) const { return false; }
  virtual void input(const LinearInput& /*input*/) {}
  // The residual stream [tokens, width] before this layer's mixer, of all tokens of the batch.
  virtual void residual(int64_t /*layer*/, const float* /*rows*/, int64_t /*tokens*/, int64_t /*width*/) {}
  // Called before the layer's MLP or experts; in the last layer with the rows that continue.
  virtual void middle(int64_t /*layer*/, const float* /*rows*/, int64_t /*tokens*/, int64_t /*width*/) {}
  // The final hidden states [rows, width] of the batch's output rows, after the last norm.
  virtual void hidden(const float* /*hidden*/, int64_t /*rows*/, int64_t /*width*/) {}
};

// One product y = W x + bias: y [tokens, weight.rows].
struct LinearCall {
  LinearInput in;
  float* y = nullptr;
  const KernelTable& kernels;
  ThreadPool& pool;
};

class LinearWrapper {
 public:
  virtual ~LinearWrapper() = default;

  // False: apply() is not called for this matrix.
  virtual bool wraps(const LinearId& /*id*/) const { return true; }
  // true: apply() sets y, without the bias, and the model's own matrix is not read. If several wrappers replace one
  // matrix, the first one is used.
  virtual bool replaces(const LinearId& /*id*/) const { return false; }
  // Sets y, or adds to y, which then holds the product and the bias.
  virtual void apply(const LinearCall& call) = 0;
  // From now on the pass continues with these rows of the batch, ascending.
  virtual void keep(std::span<const int32_t> /*rows*/) {}
};

// A block that some tokens run between a layer's mixer and its MLP.
class LayerBlock {
 public:
  virtual ~LayerBlock() = default;

  // False: run() is not called for this layer.
  virtual bool runs(int64_t layer) const = 0;
  // Changes rows of the residual stream [tokens, width], to which the mixer's output has been added.
  virtual void run(int64_t layer, float* residual) = 0;
  // As LinearWrapper::keep().
  virtual void keep(std::span<const int32_t> rows) = 0;
};

// Hides keys from the queries of a layer, which its gates decide in the pass, or whole heads (models/eviction_gates.h).
class KeyGate {
 public:
  virtual ~KeyGate() = default;

  // Called before the layer attends; the batch's keys and values are stored. x [tokens, width]: the layer's input
  // behind its norm. Fills `lifetimes`, which is empty; memory that it points to must live until the next layer's call.
  virtual void hide(const AttentionInput& input, const float* x, KeyLifetimes& lifetimes) = 0;
};

// Not owned; called in the order in which they were added. Changed only between passes.
class ForwardHooks {
 public:
  // Returns true if some hook receives the input rows of this matrix.
  bool reads(const LinearId& id) const;
  bool empty() const { return observers_.empty() && wrappers_.empty(); }  // hooks of products
  const std::vector<ForwardObserver*>& observers() const { return observers_; }
  const std::vector<LinearWrapper*>& wrappers() const { return wrappers_; }
  const std::vector<LayerBlock*>& blocks() const { return blocks_; }

  void add(ForwardObserver& observer) { observers_.push_back(&observer); }
  void remove(const ForwardObserver& observer) { std::erase(observers_, &observer); }
  void add(LinearWrapper& wrapper) { wrappers_.push_back(&wrapper); }
  void remove(const LinearWrapper& wrapper) { std::erase(wrappers_, &wrapper); }
  void add(LayerBlock& block) { blocks_.push_back(&block); }
  void remove(const LayerBlock& block) { std::erase(blocks_, &block); }
  KeyGate* gate() const { return gate_; }
  void set_gate(KeyGate* gate) { gate_ = gate; }  // null: none

 private:
  std::vector<ForwardObserver*> observers_;
  std::vector<LinearWrapper*> wrappers_;
  std::vector<LayerBlock*> blocks_;
  KeyGate* gate_ = nullptr;
};

inline bool ForwardHooks::reads(const LinearId& id) const {
  return std::ranges::any_of(observers_, [&](const auto* observer) { return observer->taps(id); }) ||
         std::ranges::any_of(wrappers_, [&](const auto* wrapper) { return wrapper->wraps(id); });
}

}  // namespace millrace
