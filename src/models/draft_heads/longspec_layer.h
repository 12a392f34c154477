// LongSpec's draft layer (Yang et al., 2025, LongSpec: Long-Context Lossless Speculative Decoding with Efficient
// Drafting and Verification, section 3.1), a decoder layer with a second attention over the keys and values that the
// model's last layer has stored:
//
//   x = E[token];  x = x + attention(norm(x));  x = x + cross(norm(x));  x = x + MLP(norm(x));  logits = head of x
//
// The first attention sees a window of the newest tokens, the second all tokens that the model has computed. The head
// and the embedding table are the model's; there is no last norm. The layer reads tokens and no hidden states of the
// model, so its own keys and values can be computed before the model runs.
//
// Tensors: self_attn.{q,k,v,o}_proj and cross_attn.{q,o}_proj, with optional biases except for o; mlp.*; and the norms
// input_layernorm, post_self_attention_layernorm and post_cross_attention_layernorm. config.json is that of the model.
// It may set `draft_window`, the length of the window; the default is 512.
#pragma once

#include <memory>
#include <string>

#include "models/draft_heads/draft_files.h"
#include "models/draft_heads/draft_layer.h"

namespace millrace {

class LongspecLayer final : public DraftLayer {
 public:
  // `target`: the model that the layer drafts for; must outlive the layer. `context`: maximum number of tokens of a
  // stream. Errors: corrupt (a tensor), unsupported (the model's last layer does not store the keys of all tokens),
  // user (the layer was made for another model), resource.
  static Result<std::unique_ptr<LongspecLayer>> load(const std::string& path, const Model& target,
                                                     const KernelTable& table, ThreadPool& pool, int64_t context,
                                                     std::shared_ptr<MemoryAccounts> accounts = nullptr);

  bool reads_features() const override { return false; }
  std::string identity() const override { return draft_identity(*files_); }
  int64_t bytes() const override { return weights_.bytes(); }
  void store(const Batch& batch, ForwardContext& context) const override;
  void cross(const Batch& batch, const Batch& crossing, ForwardContext& context) const override;
  void head(std::span<const int32_t> rows, ForwardContext& context) const override;

 private:
  explicit LongspecLayer(const Model& target) : DraftLayer(target) {}
  Result<void> check_target() const;
  Result<void> load_weights(const KernelTable& table, ThreadPool& pool, std::shared_ptr<MemoryAccounts> accounts);
  ActivationRows add_and_norm(const NormWeights& norm, const Weight& next, int64_t tokens,
                              ForwardContext& context) const;

  std::shared_ptr<const ModelFiles> files_;
  DraftWeights weights_;
  LayerWeights layer_, cross_;
  DraftRopes ropes_;
};

}  // namespace millrace
