// CrossLayers: the cross-attention that CEPE (Yen, Gao and Chen, 2024, section 2) adds to the last layers of a decoder,
// between self-attention and MLP:
//
//   x = x + W_o attention(W_q norm(x), W_k h, W_v h)        h: the hidden states of all pieces (document_encoder.h)
//
// Neither queries nor keys are rotated, so that a piece's keys and values depend on nothing but the piece.
//
// Tensors: model.layers.{l}.cross_attn.{q,k,v,o}_proj and .layernorm of the last `num_cross_attn_layers` layers. The
// file also has the decoder's tensors, which are not read: any file of the same decoder will do.
//
// Immutable after load(); run() and store() change only their arguments.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/draft_heads/draft_files.h"
#include "models/forward_context.h"
#include "models/model.h"

namespace millrace {

class CrossLayers {
 public:
  // For the layers of `target`, over hidden states of `encoder_width` values. Errors: corrupt (a key or tensor),
  // unsupported (another way of encoding), user (made for another decoder), resource.
  static Result<std::unique_ptr<CrossLayers>> load(std::shared_ptr<const ModelFiles> files, const ArchSpec& target,
                                                   int64_t encoder_width, const KernelTable& table, ThreadPool& pool,
                                                   std::shared_ptr<MemoryAccounts> accounts);

  // Spec of a model that has only these layers, each of which is a mixer.
  const ArchSpec& spec() const { return spec_; }
  int64_t first_layer() const { return first_layer_; }  // first layer of the decoder that has cross-attention
  int64_t bytes() const { return weights_.bytes(); }    // packed
  // Floats that store() needs for `tokens` tokens.
  int64_t scratch_floats(int64_t tokens) const;

  // Computes keys and values from `tokens` hidden states [tokens, encoder_width] and stores them in slots from 0 on of
  // `blocks`, in all layers of `kv`, which are the layers of spec(). `encoder`: the context of the encoder's pass.
  void store(const float* hidden, int64_t tokens, std::span<const BlockId> blocks, KvPool& kv, float* scratch,
             ForwardContext& encoder) const;
  // Runs the cross-attention of the decoder's layer `layer` >= first_layer(): changes rows `rows` of the residual
  // stream [.., width]. Span and visibility of token i of `batch` say which keys in context.kv() row i sees; context is
  // for spec().
  void run(int64_t layer, std::span<const int32_t> rows, float* residual, const Batch& batch,
           ForwardContext& context) const;

 private:
  CrossLayers() = default;
  Result<void> read_config(const ArchSpec& target);
  Result<void> load_weights(int64_t encoder_width, const KernelTable& table, ThreadPool& pool,
                            std::shared_ptr<MemoryAccounts> accounts);

  std::shared_ptr<const ModelFiles> files_;
  ArchSpec spec_;
  int64_t first_layer_ = 0;
  int64_t encoder_width_ = 0;
  DraftWeights weights_;
  std::vector<LayerWeights> layers_;  // from first_layer_ on
};

}  // namespace millrace
