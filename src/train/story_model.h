// The trained model: Llama's block (RMSNorm, RoPE, grouped-query attention, SwiGLU) with a tied head, in libtorch.
// (Touvron et al. 2023, "LLaMA"; Ainslie et al. 2023, "GQA"; Su et al. 2021, "RoFormer".)
//
// RoPE rotates element i with element i + head_dim/2, which is the cheaper layout in libtorch. The exporter permutes
// the rows of queries and keys to the interleaved pairs (2i, 2i+1) of GGUF's llama architecture. Not thread-safe.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace millrace {

struct StoryModelConfig {
  int64_t vocab = 4096;
  int64_t context = 1024;
  int64_t dim = 256;
  int64_t layers = 6;
  int64_t heads = 8;
  int64_t kv_heads = 4;
  int64_t ffn = 704;
  double rope_base = 10000.0;
  double norm_epsilon = 1e-5;
  double dropout = 0.1;
  bool bf16 = true;  // true: trains with bfloat16 products in the blocks, if the processor supports them

  int64_t head_dim() const { return dim / heads; }
  int64_t parameters() const;
};

struct StoryLayer {
  torch::Tensor attention_norm;  // [dim]
  torch::Tensor qkv;             // [(heads + 2 kv_heads) * head_dim, dim]: q rows, then k, then v
  torch::Tensor out;             // [dim, heads * head_dim]
  torch::Tensor ffn_norm;        // [dim]
  torch::Tensor gate_up;         // [2 ffn, dim]: gate rows, then up
  torch::Tensor down;            // [dim, ffn]
};

class StoryModel : public torch::nn::Module {
 public:
  StoryModel(const StoryModelConfig& config, uint64_t seed);

  // ids [batch, tokens] -> logits [batch * tokens, vocab].
  torch::Tensor forward(const torch::Tensor& ids);

  // Sets the seed of dropout, which has a separate random sequence. A resumed run uses another seed.
  void seed_dropout(uint64_t seed) { dropout_seed_ = seed << 32; }

  const StoryModelConfig& config() const { return config_; }
  const torch::Tensor& embedding() const { return embedding_; }
  const torch::Tensor& final_norm() const { return final_norm_; }
  const std::vector<StoryLayer>& layers() const { return layers_; }

 private:
  torch::Tensor norm(const torch::Tensor& x, const torch::Tensor& weight) const;
  torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight) const;
  torch::Tensor rotate(const torch::Tensor& x, int64_t tokens) const;
  torch::Tensor attention(const StoryLayer& layer, const torch::Tensor& x, int64_t batch, int64_t tokens);
  torch::Tensor feed_forward(const StoryLayer& layer, const torch::Tensor& x) const;
  torch::Tensor mask(int64_t tokens);

  StoryModelConfig config_;
  bool bf16_;
  uint64_t dropout_seed_ = 0;
  torch::Tensor embedding_;   // [vocab, dim]
  torch::Tensor final_norm_;  // [dim]
  std::vector<StoryLayer> layers_;
  torch::Tensor cos_, sin_;  // [context, 1, head_dim / 2]
  torch::Tensor mask_;       // mask of the last requested length
};

}  // namespace millrace
