// EAGLE's draft layer (Li et al., 2024, EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty; 2025,
// EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test). One decoder layer reads
// a token together with the feature of the token before it, and computes the feature of this token. From that feature
// the next token is drawn and the next feature is computed. For tokens that the model has run, features are those of
// the model:
//
//   EAGLE 1 and 2   x = FC [embedding; feature] + b;  x += attention(x);  x += mlp(norm(x));  logits = the model's head
//                   feature: the model's final hidden state, after the last norm
//   EAGLE 3         x = feature;  x += attention [norm(embedding); norm(feature)];  x += mlp(norm(x));
//                   logits = its own head of norm(x), over a vocabulary of its own
//                   feature: FC [low; middle; high], residual streams before three of the model's layers
//
// EAGLE 1 and 2 have the same files and differ in the tree that is drafted. Files: config.json as of a Llama with one
// layer (EAGLE 3: draft_vocab_size). Tensors of EAGLE 1 and 2: fc.weight [width, 2 width], fc.bias, and those of
// Llama's layers.0 without input_layernorm. Tensors of EAGLE 3: fc.weight [width, 3 width], midlayer.hidden_norm, those
// of Llama's layer as midlayer, with Q, K and V of 2 width columns; norm, lm_head [draft vocab, width], and d2t: token
// i of the draft vocabulary is token i + d2t[i] of the model's. The embedding table is the model's own, a copy of it is
// not read.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "models/draft_heads/draft_files.h"
#include "models/draft_heads/draft_layer.h"

namespace millrace {

class EagleLayer final : public DraftLayer {
 public:
  // `target`, for which it drafts, outlives it; streams have up to `context` tokens. Errors: corrupt (a tensor),
  // unsupported (more layers than one), user (made for a model of another width or vocabulary), resource.
  static Result<std::unique_ptr<EagleLayer>> load(const std::string& path, const Model& target,
                                                  const KernelTable& table, ThreadPool& pool, int64_t context,
                                                  std::shared_ptr<MemoryAccounts> accounts = nullptr);

  bool joins() const override { return third_; }  // EAGLE 3
  std::array<int64_t, 3> taps() const override { return taps_; }
  bool own_vocabulary() const override { return !ids_.empty(); }
  TokenId target_token(int64_t token) const override {
    return static_cast<TokenId>(ids_.empty() ? token : ids_[static_cast<size_t>(token)]);
  }
  std::string identity() const override { return draft_identity(*files_); }
  int64_t bytes() const override { return weights_.bytes(); }
  int64_t scratch_bytes(int64_t tokens) const override;
  void join(const float* taps, int64_t tokens, uint8_t* scratch, ThreadPool& pool, float* features) const override;
  void forward(const Batch& batch, const float* features, uint8_t* scratch, ForwardContext& context) const override;
  void head(std::span<const int32_t> rows, ForwardContext& context) const override;

 private:
  explicit EagleLayer(const Model& target) : DraftLayer(target) {}
  Result<void> read_config(int64_t context);
  Result<void> load_weights(const KernelTable& table, ThreadPool& pool, std::shared_ptr<MemoryAccounts> accounts);
  Result<void> load_vocabulary();

  std::shared_ptr<const ModelFiles> files_;
  const KernelTable* table_ = nullptr;
  bool third_ = false;
  std::array<int64_t, 3> taps_ = {};
  DraftWeights weights_;
  LayerWeights layer_;
  Weight join_;  // FC
  std::vector<float> join_bias_;
  NormWeights feature_norm_, output_norm_;  // EAGLE 3
  Weight head_;                             // EAGLE 3
  std::vector<int32_t> ids_;                // EAGLE 3: of the draft vocabulary, the model's tokens
  DraftRopes ropes_;
};

}  // namespace millrace
