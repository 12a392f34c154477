// LabModel: a small Llama (RMSNorm, RoPE, grouped-query attention, gated MLP, tied head) with its gradient written out,
// for training on a CPU without any library. (Touvron et al., 2023, "LLaMA"; Ainslie et al., 2023, "GQA"; Su et al.,
// 2021, "RoFormer".) A batch is documents one after another, each with its own positions; none attends to another.
// Products take bfloat16 factors and sum in F32; weights and residual stream are F32. The result does not depend on the
// number of threads. Thread-safety: one caller.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/training.h"
#include "millrace/token.h"

namespace millrace {

constexpr int64_t kLabChunk = 64;  // rows that a thread takes at a time

enum class LabGate : uint8_t { silu, relu };

// Sizes are multiples of 32, and so are the head's.
struct LabShape {
  int64_t vocab = 2048, context = 2048, dim = 256, layers = 6, heads = 8, kv_heads = 4, hidden = 512;
  double rope_base = 50000;
  float epsilon = 1e-5f;
  LabGate gate = LabGate::silu;
  int64_t experts = 0;  // MLPs of a layer, of which a token uses two; 0: one that every token uses

  int64_t head_dim() const { return dim / heads; }
  int64_t qkv() const { return (heads + 2 * kv_heads) * head_dim(); }
  int64_t parameters() const;
  bool operator==(const LabShape&) const = default;
};

// Returns true if the loops can train the shape, and its size is sane.
bool trainable(const LabShape& shape);

// Rows of a matrix [rows, columns] in the flat array of weights; a vector has one row.
struct LabTensor {
  std::string name;
  int64_t rows = 1, columns = 0, offset = 0;
  std::vector<int64_t> parts;  // rows of the matrices stacked in this one
  bool matrix = false;         // true: a matrix of a block; neither the embedding nor a norm
};

struct LabLayerTensors {
  LabTensor attention_norm, qkv, out, mlp_norm, gate_up, down;  // tensors of all experts, one after another
  LabTensor router;                                             // [experts, dim]; only with experts
};

struct LabBatch {
  std::vector<TokenId> ids;
  std::vector<TokenId> targets;  // the next token of each
  std::vector<float> weights;    // weights of the loss; 0: not computed
  std::vector<int64_t> starts;   // starts of the documents
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

struct LabLoss {
  double loss = 0, weight = 0;     // sums
  std::vector<int64_t> rows;       // positions with a weight
  std::vector<float> losses;       // loss of each token, without the weight
  std::vector<int64_t> predicted;  // the most probable token
};

class LabModel {
 public:
  LabModel(const LabShape& shape, uint64_t seed);

  const LabShape& shape() const { return shape_; }
  std::vector<float>& weights() { return weights_; }
  const std::vector<float>& weights() const { return weights_; }
  std::vector<float>& gradient() { return gradient_; }
  const LabTensor& embedding() const { return embedding_; }
  const LabTensor& final_norm() const { return final_norm_; }
  const std::vector<LabLayerTensors>& layers() const { return layers_; }
  std::vector<LabTensor> tensors() const;

 private:
  LabShape shape_;
  std::vector<float> weights_, gradient_;
  LabTensor embedding_, final_norm_;
  std::vector<LabLayerTensors> layers_;
};

// The buffers of a forward and backward pass.
class LabPass {
 public:
  LabPass(LabModel& model, ThreadPool& pool, const TrainingKernels& kernels);

  // With `backward`, fills the model's gradient: of the weighted mean of the losses.
  LabLoss run(const LabBatch& batch, bool backward);

  // Logits [rows, vocab] of the last run's rows with a weight; for tests.
  std::vector<float> logits(const LabBatch& batch);

 private:
  // The two experts of each token, and the rows of each expert, filled up to whole chunks.
  struct Routes {
    std::vector<int64_t> expert, row;  // [tokens][2]
    std::vector<float> shares, all;    // [tokens][2] of the chosen ones, [tokens][experts] of all
    std::vector<int64_t> token;        // token of each row; -1: none
    std::vector<int64_t> first;        // row of each expert, and the end
    std::vector<Bf16> in, gate_up, hidden;
    std::vector<float> out;
    int64_t rows() const { return static_cast<int64_t>(token.size()); }
  };
  struct Layer {
    Routes routes;
    std::vector<float> in, middle, log_sums;
    std::vector<Bf16> attention_normed, qkv, mixed, mlp_normed, gate_up, hidden;
  };
  struct Packed {
    std::vector<Bf16> rounded;
    std::vector<uint32_t> forward, backward;
  };
  struct PackedLayer {
    Packed qkv, out, gate_up, down;
  };

  // Factors of a weight's gradient: d_out and the weight's input, as panels, over a slice of the batch. A chunk is
  // packed as soon as it is computed, while it is in the cache.
  struct Factors {
    std::vector<uint32_t> left, right;
  };

  void reserve(const LabBatch& batch);
  void pack(const LabTensor& tensor, Packed& to);
  void pack_weights();
  void embed(const LabBatch& batch);
  void attention_inputs(int64_t layer);
  void attention(int64_t layer, bool backward);
  void mlp(int64_t layer);
  void dense_mlp(int64_t layer, int64_t chunk, float* x, float* out);
  void route(int64_t layer);
  void assign_rows(Routes& routes);
  void experts_forward(int64_t layer);
  void experts_backward(int64_t layer);
  void expert_rows_backward(int64_t layer, int64_t chunk, float* out);
  void router_backward(int64_t layer);
  void head(const LabBatch& batch, LabLoss& loss, bool backward);
  void head_chunk(int64_t chunk, int worker, const LabBatch& batch, LabLoss& loss, bool backward);
  void mlp_backward(int64_t layer);
  void mlp_backward_chunk(int64_t layer, int64_t chunk, int worker);
  void dense_mlp_backward(int64_t layer, int64_t chunk, const float* d_x, float* out);
  void attention_inputs_backward(int64_t layer);
  void embed_backward(const LabBatch& batch);
  void add_norm_gradient(const LabTensor& tensor, int64_t chunks);
  void reserve_factors(const LabTensor& tensor, Factors& factors);
  void pack_factors(const LabTensor& tensor, const Bf16* d_out, const Bf16* in, int64_t chunk, Factors& factors);
  // gradient += left^T right, over that many chunks of a slice.
  void add_gradient(const LabTensor& tensor, const Factors& factors, int64_t chunks);
  // gradient += d_out^T in, over `tokens` rows.
  void weight_gradient(const LabTensor& tensor, const Bf16* d_out, const Bf16* in, int64_t tokens);
  void multiply(const Bf16* rows, int64_t inner, const std::vector<uint32_t>& panels, int64_t columns, float* out);
  const float* weight(const LabTensor& tensor) const { return model_.weights().data() + tensor.offset; }

  LabModel& model_;
  const LabShape& shape_;
  ThreadPool& pool_;
  const TrainingKernels& kernels_;
  int64_t tokens_ = 0, capacity_ = 0, head_rows_ = 0, head_capacity_ = 0;
  double total_weight_ = 0;
  std::vector<std::array<int64_t, 2>> documents_;  // start and length
  std::vector<float> x_, d_x_, norm_gradients_, cosines_, sines_, d_normed_, d_row_in_, d_row_shares_;
  std::vector<Bf16> d_rows_, d_middle_, d_gate_up_, d_mixed_, d_qkv_, head_in_, d_logits_;
  std::array<Factors, 3> factors_;
  std::vector<std::vector<float>> scratch_;  // by worker
  std::vector<Layer> layers_;
  std::vector<PackedLayer> packed_;
  Packed packed_embedding_;
  std::vector<float>* keep_logits_ = nullptr;
};

}  // namespace millrace
