// Model: immutable weights and their ArchSpec, shared by engines (and later drafters). forward() is const and
// thread-compatible: it modifies only its ForwardContext and the KvPool.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory_accounts.h"
#include "base/thread_pool.h"
#include "kernels/linear.h"
#include "kv/pool.h"
#include "loader/model_files.h"
#include "millrace/token.h"
#include "models/arch_spec.h"
#include "models/linear_id.h"
#include "models/token_gates.h"
#include "tensor/weight.h"

namespace millrace {

class BackgroundPacker;
class ForwardContext;
class WeightLease;
class WeightSource;
struct Batch;

// Keys in slots [slot, slot + count) of a stream, which move to positions higher by `positions`.
struct KeyMove {
  std::span<const BlockId> blocks;
  int64_t slot = 0;
  int64_t count = 0;
  int64_t positions = 0;
};

// Rows in a separate pool, of a stream with these blocks, which are to become the rows of a batch's tokens. Keys are
// rotated to positions higher by `positions`.
struct GivenRows {
  KvPool& kv;
  std::span<const BlockId> blocks;
  int64_t slot = 0;
  int64_t positions = 0;
};

struct NormWeights {
  std::vector<float> scale;  // empty: no norm
  std::vector<float> bias;   // LayerNorm only
  // For the norm of a block's output: factor of the residual stream once the output is added.
  float residual_factor = 1.0f;
};

struct MlpWeights {
  Weight gate, up, down;  // gate absent when the MLP is not gated
  std::vector<float> gate_bias, up_bias, down_bias;
};

// AltUp's part of a layer (models/blocks/alt_up.cc).
struct AltUpWeights {
  std::vector<float> router;       // [streams, width]
  std::vector<float> router_norm;  // [width]
  std::vector<float> predict;      // [streams, streams, streams]
  std::vector<float> correct;      // [streams, streams]
  std::vector<float> scale;        // [width], of the corrected stream that the layer's own input reads
};

// Each layer's own input of a token is made from its row of the table and from its embedding.
struct LayerInputWeights {
  Tensor table;             // [vocabulary, layers * layer_input], read in place
  Weight projection;        // [layers * layer_input, width], of the embedding
  std::vector<float> norm;  // [layer_input], of each layer's part of the projection
};

// The weights of a mixer other than attention.
struct MixerWeights {
  virtual ~MixerWeights() = default;
  virtual std::vector<Weight*> matrices() = 0;
};

struct LayerWeights {
  NormWeights attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
  Weight q, k, v, output;
  std::vector<float> q_bias, k_bias, v_bias, output_bias;
  std::vector<float> q_norm, k_norm;
  // 1 - norm_offset in each place, so that the norm has no weights; only with ArchSpec::value_norm
  std::vector<float> v_norm;
  std::vector<float> sinks;             // [heads], only with ArchSpec::attention_sinks
  std::unique_ptr<MixerWeights> mixer;  // weights of the mixer that is not attention; null: there is none
  MlpWeights mlp;
  // Mixture of experts: router [experts, width], one MLP each, and the shared one with its gate [1, width].
  Weight router, shared_gate;
  std::vector<float> router_bias;
  std::vector<MlpWeights> experts;
  MlpWeights shared;
  // Experts next to a dense MLP: norms of the experts' input, and of the outputs of the MLP and of the experts; the
  // factor of each value of the router's input [width], divided by sqrt(width), and of each expert's weight [experts].
  NormWeights experts_norm, mlp_inner_norm, experts_inner_norm;
  std::vector<float> router_scale, expert_scales;
  // A layer with an input of its own: the gate [layer_input, width] and the matrix behind it [width, layer_input].
  Weight input_gate, input_projection;
  NormWeights input_post_norm;
  std::unique_ptr<AltUpWeights> alt_up;  // null: the model has one residual stream
  // LAuReL: [laurel_rank, width] and [width, laurel_rank], and the norm of the product.
  Weight laurel_left, laurel_right;
  NormWeights laurel_norm;
  // Multiplies the residual stream that passes the layer's mixer or MLP, before the block's output is added: [width,
  // width], for models whose blocks have separate coordinates (SliceGPT). Absent: the stream passes unchanged.
  Weight attention_shortcut, mlp_shortcut;
  TokenGates gates;
};

struct ModelOptions {
  std::string router = "topk";           // router of a mixture of experts (models/router.h)
  std::string weights = "resident";      // NAME[:key=value,...] (models/weight_source.h); others need a packed_cache
  int64_t context = 0;                   // longest stream to support; 0: the trained length, at most kDefaultContext
  std::function<void(double)> progress;  // fraction loaded; may be null
  std::string packed_cache;  // file that stores the packed weights between starts (models/packed_cache.h); "": none
  bool verify_packed_cache = false;
  // Packs the weights while the model already runs (models/background_packer.h). Not embedded models, and not with a
  // packed_cache or a memory budget: these are packed by load().
  bool pack_in_background = false;
  std::function<void(const std::string&)> warn;  // may be null
  std::shared_ptr<MemoryAccounts> accounts;      // charged with the weights' memory; may be null
};

class Model {
 public:
  ~Model();
  // Errors: unsupported, corrupt, resource; each names the file and the tensor or key.
  static Result<std::unique_ptr<Model>> load(std::shared_ptr<const ModelFiles> files, const KernelTable& table,
                                             ThreadPool& pool, const ModelOptions& options = {});

  const ArchSpec& spec() const { return spec_; }
  int64_t context() const { return context_; }
  int64_t weight_bytes() const { return weight_bytes_; }       // packed
  bool from_cache() const { return packed_file_ != nullptr; }  // the packed weights are in a mapped packed cache
  int64_t bytes_per_token() const { return token_bytes_; }     // weight bytes that one decode step reads
  const std::string& cache_path() const { return packed_file_->path(); }  // only if from_cache()
  const WeightSource* source() const { return source_.get(); }            // null: all weights are in memory
  // Used by passes and requests while weights are packed in the background; null: load() has packed them.
  BackgroundPacker* packing() const { return packing_.get(); }
  std::vector<KvLayer> kv_layers() const;
  const LayerWeights& layer(int64_t index) const { return layers_[static_cast<size_t>(index)]; }
  const Weight& head() const { return head_; }  // absent from an encoder
  // The token's row of the embedding table [width], as a batch may carry it instead of the id: before the
  // architecture's scaling (Gemma's, Granite's) and learned positions, which a pass applies to given rows, too.
  void embedding(TokenId token, float* row) const;

  // If weights cannot be read, a pass ends early and calls context.fail(); its other parts then do nothing.
  //
  // Runs the batch: stores its keys and values, and writes the logits of batch.output_rows to context.logits
  // [output_rows, vocab]. Equivalent to embed(), run_layers() of all layers and head().
  void forward(const Batch& batch, ForwardContext& context) const;

  // Rotates stored keys. Only of models that check_movable() accepts.
  void move_keys(const KeyMove& move, ForwardContext& context) const;
  // Stores given rows as the keys and values of the batch's only span, as a pass that had computed them would. The
  // batch's layers are encoded, the layers of the rows are not; both have one group.
  void put_keys(const Batch& batch, const GivenRows& rows, ForwardContext& context) const;

  // The parts of a pass, in this order; run_layers() in any number of pieces. A piece leaves its last block's output to
  // be added by the next one (ForwardContext::pending), so that splitting a pass costs no pass over the rows.
  //
  // Fills the residual of every token, and the rotations of its position.
  void embed(const Batch& batch, ForwardContext& context) const;
  // Layers [from, to). Returns the batch that continues: after the model's last layer only the output rows.
  const Batch& run_layers(const Batch& batch, int64_t from, int64_t to, ForwardContext& context) const;
  // For the layer behind a piece: completes the residual, and stores the keys and values of all tokens, as the layer
  // would. No token attends, and no other piece follows.
  void store_keys(const Batch& batch, int64_t layer, ForwardContext& context) const;
  // After a run_layers() that no other piece follows: completes the residual [tokens, width] of all tokens.
  void add_pending(int64_t tokens, ForwardContext& context) const;
  // The final hidden states of the output rows, after the last norm, to context.normed [output_rows, width].
  void hidden(const Batch& batch, ForwardContext& context) const;
  // hidden(), and the logits. Also of a batch that did not run through all layers.
  void head(const Batch& batch, ForwardContext& context) const;
  // After hidden(), in place of head(): the logits of some rows of context.normed, to `logits` [rows, vocab]. May be
  // repeated with other rows.
  void head_rows(std::span<const int32_t> rows, float* logits, ForwardContext& context) const;

 private:
  friend class ModelBuilder;
  Model();
  bool acquire(int64_t layer, ForwardContext& context, WeightLease& lease) const;
  void embed_row(const Batch& batch, int64_t t, ForwardContext& context) const;
  void add_position(int64_t position, int64_t t, ForwardContext& context) const;
  void find_types(const Batch& batch, ForwardContext& context) const;
  void add_row(const NormWeights& post_norm, int64_t t, ForwardContext& context) const;
  void pass_shortcut(const Weight& shortcut, LinearId id, int64_t tokens, ForwardContext& context) const;
  // `next`: the matrix that the rows are rounded for; null: they are not rounded.
  ActivationRows start_block(const NormWeights& norm, const Weight* next, int64_t tokens,
                             ForwardContext& context) const;
  ActivationRows last_norm(const Batch& batch, ForwardContext& context) const;
  void logits_of(const float* normed, const ActivationRows& rows, float* logits, ForwardContext& context) const;

  ArchSpec spec_;
  int64_t context_ = 0;
  int64_t weight_bytes_ = 0;
  int64_t part_bytes_ = 0;  // bytes of weight parts that are not packed
  int64_t token_bytes_ = 0;
  std::shared_ptr<const ModelFiles> files_;        // the embedding table is read in place
  AlignedBuffer packed_;                           // every matrix; the Weights view their parts ...
  std::shared_ptr<const MappedFile> packed_file_;  // ... or those of a packed cache
  std::unique_ptr<WeightSource> source_;           // null: all are resident
  Tensor embedding_;
  Tensor positions_;  // learned positions
  LayerInputWeights layer_inputs_;
  // Further residual streams: [width, width] each, from the embedding to the stream, and from the stream to the sum
  // that the head reads.
  std::vector<Weight> stream_in_, stream_out_;
  std::vector<float> types_;    // [types, width] rows of token types; empty: none
  TokenId separator_ = -1;      // token between the two texts of a pair; -1: none
  NormWeights embedding_norm_;  // set if ArchSpec::embedding_norm
  NormWeights output_norm_;
  Weight head_;
  std::vector<float> head_bias_;
  std::vector<LayerWeights> layers_;
  std::vector<std::vector<double>> rope_frequencies_;  // by ArchSpec::ropes
  std::vector<float> rope_scales_;
  std::unique_ptr<BackgroundPacker> packing_;  // must end before the weights that it reads and writes
};

}  // namespace millrace
